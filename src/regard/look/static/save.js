// What is shown as a file: SVG as it is drawn, PNG at twice its size.

import { ink, shape } from "./dom.js";

const SHARPNESS = 2;
const LARGEST_SIDE = 8192; // what canvases hold everywhere

function finished(picture) {
  const copy = picture.cloneNode(true);
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.prepend(shape("rect", { width: "100%", height: "100%", fill: ink("paper") }));
  return new Blob([new XMLSerializer().serializeToString(copy)], { type: "image/svg+xml" });
}

export function saveVector(picture, name) {
  download(finished(picture), `${name}.svg`);
}

export async function savePixels(picture, name) {
  const address = URL.createObjectURL(finished(picture));
  const image = new Image();
  image.src = address;
  await image.decode();
  const [width, height] = ["width", "height"].map((side) => Number(picture.getAttribute(side)));
  const factor = Math.min(SHARPNESS, LARGEST_SIDE / Math.max(width, height));
  const canvas = document.createElement("canvas");
  canvas.width = Math.round(width * factor);
  canvas.height = Math.round(height * factor);
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  URL.revokeObjectURL(address);
  download(await new Promise((done) => canvas.toBlob(done)), `${name}.png`);
}

function download(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
