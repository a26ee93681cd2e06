// The output as it came, token by token: what was looked at, and what else could have been said.

import { colour, onTone, toner } from "./colours.js";
import { clamp, element, FONT, ink, percent, quoted, shape, short, widthOf, word } from "./dom.js";
import { mostOf, patchesOf, sourceWords } from "./maps.js";
import { aspectOf, drawMap, onlyPatch, picturesReady } from "./overlay.js";
import { choiceAt, choices, sites, speaks } from "./record.js";
import { change, scale, site, state } from "./state.js";

const LINE = 52;
const SEEN = 80; // sources shown at a time
const SAID = 40; // tokens of the output shown at a time
const WIDEST = 900; // pixels
const MAP = 240; // pixels of a picture
const PACE = 1100; // milliseconds of a step
const BOLD = 1.12; // times as wide as plain letters, about

export function steps(panel, say) {
  let clock = null;
  const button = (label, text, act) => element("button", { type: "button", "aria-label": label, title: label, onclick: act }, text);
  const play = button("Play", "▶", () => toggle());
  const slider = element("input", { type: "range", min: 0, "aria-label": "Step", oninput: () => go(Number(slider.value)) });
  const count = element("span", { class: "count" });
  const box = element("div", { class: "drawing" });
  panel.append(element("div", { class: "player" }, button("Back", "‹", () => go(here() - 1)), play, button("Forward", "›", () => go(here() + 1)), slider, count), box);
  new ResizeObserver(() => panel.hidden || draw()).observe(box);
  picturesReady.then(() => panel.hidden || draw());

  const here = () => state.row ?? 0;
  const last = () => site().targets.length - 1;

  function go(step) {
    change({ row: clamp(step, 0, last()), column: null });
  }

  function toggle(on = !clock) {
    clearInterval(clock);
    clock = null;
    if (on) {
      if (here() === last()) go(0);
      clock = setInterval(() => (here() < last() && !panel.hidden ? go(here() + 1) : toggle(false)), PACE);
    }
    play.textContent = clock ? "❚❚" : "▶";
    play.setAttribute("aria-label", clock ? "Pause" : "Play");
  }

  // Entered with an attention whose rows are no output, it takes the one before or after that has it.
  function enter() {
    if (choices.length && !speaks(site()) && sites.some(speaks)) change({ site: sites.findLastIndex(speaks) });
  }

  function update() {
    slider.max = last();
    slider.value = here();
    slider.setAttribute("aria-valuetext", `${here() + 1} of ${last() + 1}: ${word(site().targets[here()])}`);
    count.textContent = `${(here() + 1).toLocaleString("en")} / ${(last() + 1).toLocaleString("en")}`;
    draw();
    const choice = choiceAt(site(), here());
    say(choice ? `Step ${here() + 1}: ${quoted(choice.token)} with a probability of ${percent(choice.probability)}.` : `Row ${here() + 1}: ${quoted(site().targets[here()])}. Nothing is known of what else could have come.`);
  }

  function draw() {
    box.replaceChildren(picture());
  }

  function picture() {
    const width = clamp(box.clientWidth, 300, WIDEST);
    const weights = site().row(state.head, here(), state.temperature);
    const tone = toner(scale(), weights.length);
    const strongest = weights.reduce((best, weight, i) => (weight > weights[best] ? i : best), 0);
    const size = width < 560 ? 17 : 20;
    const root = shape("svg", { width, role: "img", "font-family": FONT, "font-size": size, fill: ink("ink") });
    let y = heading(root, "looks at", 20);
    y = maps(root, weights, y - 20);
    const places = sourceWords(site());
    const read = places.map((place) => site().sources[place]);
    if (read.length) {
      y = flow(root, read, pageOf(read, Math.max(0, places.indexOf(strongest)), SEEN), { width, size, y: y + 20 * (places.length < weights.length) }, (i) => {
        const weight = weights[places[i]];
        return { fill: colour(tone(weight)), text: onTone(tone(weight)), note: weight >= 0.02 ? percent(weight) : "" };
      });
    }
    y = heading(root, choices.length && !speaks(site()) ? "has read" : "has said", y + 30);
    y = flow(root, site().targets, pageOf(site().targets, here(), SAID), { width, size, y }, (i) => ({
      fill: i === here() ? ink("chosen") : "none", text: i === here() ? ink("paper") : ink("ink"), note: "", isHidden: i > here(),
    }));
    const choice = choiceAt(site(), here());
    if (choice) y = candidates(root, choice, { width, size, y: heading(root, "could have said", y + 22) });
    root.setAttribute("height", y);
    root.setAttribute("viewBox", `0 0 ${width} ${y}`);
    root.setAttribute("aria-label", `Step ${here() + 1}: ${word(site().targets[here()])}, which looks most at ${word(site().sources[strongest])}`);
    return root;
  }

  // The pictures that are looked at, side by side.
  function maps(root, weights, y) {
    const grids = site().columns;
    if (!grids.length) return y + 20;
    const look = { most: mostOf(grids, weights), scale: "linear", only: onlyPatch(grids, weights) };
    const tallest = Math.max(...grids.map((grid) => MAP / aspectOf(grid)));
    grids.forEach((grid, i) => {
      const canvas = element("canvas", { width: 2 * MAP, height: Math.round((2 * MAP) / aspectOf(grid)) });
      drawMap(canvas, grid, patchesOf(grid, weights), look);
      root.append(shape("image", { x: 2 + i * (MAP + 12), y, width: MAP, height: MAP / aspectOf(grid), href: canvas.toDataURL() }));
    });
    return y + tallest + 20;
  }

  function heading(root, text, y) {
    root.append(shape("text", { x: 2, y, "font-size": 13, fill: ink("quiet") }, text));
    return y + 32;
  }

  function pageOf(tokens, place, length) {
    const start = Math.floor(place / length) * length;
    return [start, Math.min(tokens.length, start + length)];
  }

  // Tokens one after the other, on as many lines as they need. What is not said yet has its place already.
  function flow(root, tokens, [start, end], { width, size, y }, look) {
    let x = 2;
    for (let i = start; i < end; i++) {
      const text = short(tokens[i]);
      const wide = Math.max(8, widthOf(text, size)) + 16;
      x += i > start && !/^[ <]/.test(tokens[i]) ? -4 : 0;
      if (x > 2 && x + wide > width - 2) [x, y] = [2, y + LINE];
      const { fill, text: letters, note, isHidden } = look(i);
      if (!isHidden) {
        root.append(shape("rect", { x, y: y - 24, width: wide, height: 34, rx: 8, fill, stroke: fill === "none" ? "none" : ink("line") }),
          shape("text", { x: x + wide / 2, y, "text-anchor": "middle", fill: letters }, text));
        if (note) root.append(shape("text", { x: x + wide / 2, y: y + 25, "text-anchor": "middle", "font-size": 12, fill: ink("quiet") }, note));
      }
      x += wide + 6;
    }
    if (end - start < tokens.length) root.append(shape("text", { x: 2, y: y + LINE, "font-size": 12, fill: ink("quiet") }, `tokens ${start + 1} to ${end} of ${tokens.length.toLocaleString("en")}`));
    return y + (end - start < tokens.length ? LINE + 24 : 30);
  }

  function candidates(root, choice, { width, size, y }) {
    const known = choice.best.some(([token]) => token === choice.token);
    const all = known ? choice.best : [...choice.best, [choice.token, choice.probability]];
    const left = Math.min(width / 3, BOLD * Math.max(...all.map(([token]) => widthOf(short(token), size))) + 16);
    const room = Math.min(560, width - left - 80);
    for (const [token, probability] of all) {
      const isTaken = token === choice.token;
      const long = Math.max(2, room * probability);
      root.append(
        shape("text", { x: left - 8, y, "text-anchor": "end", "font-weight": isTaken ? 600 : 400, fill: isTaken ? ink("chosen") : ink("ink") }, short(token)),
        shape("rect", { x: left, y: y - 16, width: long, height: 20, rx: 4, fill: ink(isTaken ? "chosen" : "accent"), "fill-opacity": isTaken ? 1 : 0.55 }),
        shape("text", { x: left + long + 8, y: y - 1, "font-size": 14, fill: ink("quiet") }, percent(probability)));
      y += 32;
    }
    return y;
  }

  function key(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (event.key === " ") toggle();
    else if (step) go(here() + step);
    else if (event.key === "Home") go(0);
    else if (event.key === "End") go(last());
    else return false;
    return true;
  }

  return { enter, update, key, leave: () => toggle(false), picture };
}
