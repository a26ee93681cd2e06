// What is shown as a file: SVG as it is drawn, PNG at twice its size.

import { ink, shape } from "./dom.js";

const SHARPNESS = 2;
const EDGE = 16; // pixels of paper around
const LARGEST_SIDE = 8192; // what canvases hold everywhere

const sizeOf = (picture) => ["width", "height"].map((side) => Number(picture.getAttribute(side)) + 2 * EDGE);

function finished(picture) {
  const copy = picture.cloneNode(true);
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  const [, , across, down] = picture.getAttribute("viewBox").split(" ").map(Number);
  const [width, height] = sizeOf(picture);
  const edge = (EDGE * across) / Number(picture.getAttribute("width")); // in the units of the drawing
  const paper = { x: -edge, y: -edge, width: across + 2 * edge, height: down + 2 * edge };
  copy.setAttribute("viewBox", Object.values(paper).join(" "));
  copy.setAttribute("width", width);
  copy.setAttribute("height", height);
  copy.prepend(shape("rect", { ...paper, fill: ink("paper") }));
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
  const [width, height] = sizeOf(picture);
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
