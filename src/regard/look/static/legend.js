// The colours beside the weights they stand for.

import { colour, smallest, toner } from "./colours.js";
import { element } from "./dom.js";

export function drawLegend(legend, scale, count) {
  const low = smallest(count);
  const marks = scale === "linear" ? [0, 0.25, 0.5, 0.75, 1] : [low, low ** 0.75, low ** 0.5, low ** 0.25, 1];
  const figure = (weight) => (scale === "linear" || weight === 1 ? String(weight) : weight.toPrecision(1));
  const tone = toner(scale, count);
  const strip = element("canvas", { width: 256, height: 1 });
  const pen = strip.getContext("2d");
  for (let i = 0; i < 256; i++) {
    pen.fillStyle = colour(i);
    pen.fillRect(i, 0, 1, 1);
  }
  const ticks = marks.map((weight) => {
    const tick = element("span", {}, figure(weight));
    tick.style.left = `${(tone(weight) / 255) * 100}%`;
    return tick;
  });
  legend.setAttribute("aria-label", `Colours: ${scale}, from ${figure(marks[0])} to 1`);
  legend.replaceChildren(strip, element("div", { class: "ticks" }, ...ticks));
}
