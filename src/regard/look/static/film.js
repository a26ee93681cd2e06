// A strip of small maps, and the view of pictures as one drawing.

import { element, FONT, ink, percent, shape, short } from "./dom.js";
import { mostOf, patchesOf } from "./maps.js";
import { aspectOf, drawMap, onlyPatch } from "./overlay.js";

const FRAME = { wide: 112, narrow: 96 }; // pixels of a small map
const NARROW = 560;
const AT_ONCE = 8; // small maps that are painted before the page answers again
const APART = 12;
const TITLED = 46; // pixels above a large map

const small = (film) => (film.clientWidth < NARROW && film.parentNode.clientWidth < NARROW ? FRAME.narrow : FRAME.wide);
const turns = new WeakMap();

function blank() {
  return element("button", { type: "button", class: "frame" }, element("span", { class: "maps", "aria-hidden": "true" }),
    element("span", { class: "about" }, element("span", { class: "caption" }), element("small", {})));
}

// The frames stay while their number does: one that has the focus keeps it.
export async function roll(film, frames, { name, look, choose }) {
  const mine = {};
  turns.set(film, mine);
  if (film.children.length !== frames.length || film.dataset.name !== String(name)) {
    film.dataset.name = name;
    film.replaceChildren(...frames.map(blank));
  }
  for (const [i, frame] of frames.entries()) {
    fillFrame(film.children[i], frame, small(film), look, choose);
    if (i % AT_ONCE === AT_ONCE - 1) await new Promise((next) => setTimeout(next));
    if (turns.get(film) !== mine) return;
  }
}

function fillFrame(node, { grids, label, isShown, weights, change }, side, look, choose) {
  const own = weights();
  const most = mostOf(grids, own);
  const only = onlyPatch(grids, own);
  node.onclick = () => choose(change);
  node.setAttribute("aria-current", String(isShown));
  node.querySelector(".caption").textContent = short(label);
  node.querySelector("small").textContent = only === null ? percent(most) : "hard";
  const maps = node.querySelector(".maps");
  if (maps.children.length !== grids.length) maps.replaceChildren(...grids.map(() => element("canvas")));
  grids.forEach((grid, i) => {
    const canvas = maps.children[i];
    const width = side * Math.min(1, aspectOf(grid));
    [canvas.width, canvas.height] = [width, width / aspectOf(grid)].map((length) => Math.round(length * devicePixelRatio));
    canvas.style.width = `${width}px`;
    drawMap(canvas, grid, patchesOf(grid, own), { ...look, most, only });
  });
}

function placed(canvas, x, y) {
  const [width, height] = [canvas.width / devicePixelRatio, canvas.height / devicePixelRatio];
  return { image: shape("image", { x, y, width, height, href: canvas.toDataURL() }), width, height };
}

// The large maps, and the strip below them.
export function sheet(titles, stage, film) {
  const root = shape("svg", { "font-family": FONT, "font-size": 14, fill: ink("ink") });
  const step = small(film) + APART;
  let [x, tallest] = [0, 0];
  [...stage.children].forEach((figure, i) => {
    root.append(shape("text", { x, y: 16 }, titles[i]), shape("text", { x, y: 36, fill: ink("quiet"), "font-size": 12 }, figure.querySelector(".share").textContent));
    for (const canvas of figure.querySelectorAll("canvas")) {
      const { image, width, height } = placed(canvas, x, TITLED);
      root.append(image);
      x += width + APART;
      tallest = Math.max(tallest, height);
    }
  });
  const widest = Math.max(x, Math.min(film.children.length, 6) * step) - APART;
  const across = Math.max(1, Math.floor((widest + APART) / step));
  const top = TITLED + tallest + 2 * APART;
  let bottom = top - APART;
  [...film.children].forEach((frame, i) => {
    let left = (i % across) * step;
    const y = top + Math.floor(i / across) * (step + 20);
    const text = `${frame.querySelector(".caption").textContent} ${frame.querySelector("small").textContent}`;
    root.append(shape("text", { x: left, y: y + 10, "font-size": 12, fill: ink(frame.getAttribute("aria-current") === "true" ? "chosen" : "ink") }, text));
    for (const canvas of frame.querySelectorAll("canvas")) {
      const { image, width, height } = placed(canvas, left, y + 16);
      root.append(image);
      left += width + 4;
      bottom = Math.max(bottom, y + 16 + height);
    }
  });
  root.setAttribute("viewBox", `0 0 ${widest} ${bottom}`);
  root.setAttribute("width", widest);
  root.setAttribute("height", bottom);
  return root;
}
