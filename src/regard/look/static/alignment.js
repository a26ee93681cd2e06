// Two texts facing each other, and a line for every weight: side by side if they fit on a line, else as two columns.

import { clamp, element, FONT, ink, percent, quoted, shape, short, widthOf, word } from "./dom.js";
import { change, site, state } from "./state.js";

const SIZE = 17; // of the letters, at least
const LARGER = 1.6; // … and at most that many times it, where there is room
const LEAST = 0.02; // lighter lines would only be a haze
const SHOWN = 120; // tokens of each text at a time; the matrix shows all
const PADDING = 7;

// Which tokens are shown: those around the chosen one, and their counterparts.
function windows({ targets, sources }) {
  const start = Math.floor((state.row ?? 0) / SHOWN) * SHOWN;
  const across = state.row === null && state.column !== null ? state.column : (start * sources.length) / targets.length;
  const from = clamp(Math.floor(across / SHOWN) * SHOWN, 0, Math.max(0, sources.length - SHOWN));
  return { targets: range(start, targets.length), sources: range(from, sources.length) };
}

const range = (start, length) => Array.from({ length: Math.min(SHOWN, length - start) }, (_, i) => start + i);

// Where the tokens stand, in units of the drawing. A token that begins no word stands close to the one before.
function layout(tokens, indices) {
  let x = 0;
  const places = indices.map((index, i) => {
    const text = short(tokens[index]);
    const width = Math.max(widthOf(text, SIZE), 8) + 2 * PADDING;
    x += i && (tokens[index].startsWith(" ") || tokens[index].startsWith("<")) ? 10 : i ? 1 : 0;
    const place = { index, text, token: tokens[index], x, width };
    x += width;
    return place;
  });
  return { places, length: x };
}

function inRows(top, bottom, width, height) {
  const gap = clamp(height - 100, 150, 260);
  for (const [line, y] of [[top, 40], [bottom, 40 + gap]]) {
    const margin = (width - line.length) / 2;
    for (const place of line.places) Object.assign(place, { left: place.x + margin, y });
  }
  const anchor = (place, down) => [place.left + place.width / 2, place.y + (down ? 17 : -17)];
  return {
    height: gap + 84,
    line(from, to) {
      const [[x1, y1], [x2, y2]] = [anchor(from, true), anchor(to, false)];
      const bend = (y2 - y1) * 0.45;
      return `M${x1} ${y1}C${x1} ${y1 + bend} ${x2} ${y2 - bend} ${x2} ${y2}`;
    },
    note: (place, above) => ({ x: place.left + place.width / 2, y: place.y + (above ? -24 : 33), "text-anchor": "middle" }),
  };
}

function inColumns(left, right, width) {
  const step = 28;
  const middle = width / 2;
  const gap = clamp(width * 0.3, 90, 300);
  const longest = Math.max(left.places.length, right.places.length);
  for (const [column, isLeft] of [[left, true], [right, false]]) {
    const top = 24 + ((longest - column.places.length) * step) / 2;
    column.places.forEach((place, i) => {
      place.y = top + i * step;
      place.left = isLeft ? middle - gap / 2 - place.width : middle + gap / 2;
    });
  }
  return {
    height: longest * step + 44,
    line(from, to) {
      const [x1, x2] = [middle - gap / 2 + 3, middle + gap / 2 - 3];
      const bend = (x2 - x1) * 0.45;
      return `M${x1} ${from.y}C${x1 + bend} ${from.y} ${x2 - bend} ${to.y} ${x2} ${to.y}`;
    },
    note: (place, isLeft) => (isLeft
      ? { x: place.left - 4, y: place.y + 5, "text-anchor": "end" }
      : { x: place.left + place.width + 4, y: place.y + 5, "text-anchor": "start" }),
  };
}

export function alignment(panel, say) {
  let hovered = null; // { side, index }
  const box = element("div", { class: "drawing" });
  panel.append(box);
  new ResizeObserver(() => panel.hidden || update()).observe(box);

  const chosen = () => hovered
    ?? (state.row !== null ? { side: "target", index: state.row } : null)
    ?? (state.column !== null ? { side: "source", index: state.column } : null);

  function hover(token) {
    hovered = token;
    draw();
  }

  function draw() {
    const focused = box.contains(document.activeElement) ? document.activeElement.dataset.key : null;
    box.replaceChildren(picture());
    if (focused) box.querySelector(`[data-key="${focused}"]`)?.focus();
    announce();
  }

  function announce() {
    const one = chosen();
    if (!one) return say("Point at a token, or move with the arrow keys, to see its own lines.");
    const [own, others] = one.side === "target" ? [site().targets, site().sources] : [site().sources, site().targets];
    const weights = weightsOf(one);
    const best = [...weights.keys()].sort((a, b) => weights[b] - weights[a]).slice(0, 4);
    const list = best.map((i) => `${quoted(others[i])} ${percent(weights[i])}`).join(", ");
    return say(`${quoted(own[one.index])} ${one.side === "target" ? "looks at" : "is looked at by"} ${list}`);
  }

  const weightsOf = ({ side, index }) => (side === "target"
    ? site().row(state.head, index, state.temperature)
    : site().column(state.head, index, state.temperature));

  function picture() {
    const [width, height] = [Math.max(box.clientWidth, 300), box.clientHeight];
    const shown = windows(site());
    const sources = layout(site().sources, shown.sources);
    const targets = layout(site().targets, shown.targets);
    const longer = Math.max(sources.length, targets.length) + 16;
    const scale = longer <= width ? Math.min(LARGER, width / longer) : 1;
    const [across, down] = [width / scale, height / scale];
    const plan = longer <= width ? inRows(sources, targets, across, down) : inColumns(sources, targets, across);
    const one = chosen();
    const lines = shape("g", { fill: "none", "stroke-linecap": "round" });
    for (const target of targets.places) {
      const weights = site().row(state.head, target.index, state.temperature);
      for (const source of sources.places) {
        const weight = weights[source.index];
        const isOwn = one && (one.side === "target" ? one.index === target.index : one.index === source.index);
        if (weight < LEAST || (one && !isOwn)) continue;
        lines.append(shape("path", {
          d: plan.line(source, target), stroke: ink(isOwn ? "chosen" : "accent"),
          "stroke-width": (0.8 + 4.2 * weight).toFixed(2), "stroke-opacity": (0.12 + 0.88 * weight).toFixed(3),
        }));
      }
    }
    const weights = one ? weightsOf(one) : null;
    const tokens = [["source", sources], ["target", targets]].map(([side, { places }]) => shape(
      "g", { role: "group", "aria-label": side === "source" ? "Looked at" : "Produced" },
      ...places.map((place, i) => token(side, place, one, weights, plan, i))));
    return shape("svg", { width, height: plan.height * scale, viewBox: `0 0 ${across} ${plan.height}`, role: "group", "font-family": FONT,
      "font-size": SIZE, "aria-label": `Alignment by ${site().name}, ${site().headName(state.head)}` }, lines, ...tokens, ...partly(shown, across, plan.height));
  }

  // A long text is shown in part, and says so.
  function partly(shown, width, height) {
    const part = (name, indices, all) => `${name} ${(indices[0] + 1).toLocaleString("en")} to ${(indices.at(-1) + 1).toLocaleString("en")} of ${all.toLocaleString("en")}`;
    const { sources, targets } = site();
    if (shown.sources.length === sources.length && shown.targets.length === targets.length) return [];
    const text = `Tokens: ${part("looked at", shown.sources, sources.length)}; ${part("produced", shown.targets, targets.length)}`;
    return [shape("text", { x: width / 2, y: height - 4, "text-anchor": "middle", "font-size": 13, fill: ink("quiet") }, text)];
  }

  function token(side, place, one, weights, plan, order) {
    const isChosen = one?.side === side && one.index === place.index;
    const weight = one && one.side !== side ? weights[place.index] : null;
    const key = `${side}${place.index}`;
    const hold = () => {
      hovered = null;
      const held = side === "target" ? { row: place.index, column: null } : { row: null, column: place.index };
      const isHeld = held.row === state.row && held.column === state.column;
      change(isHeld ? { row: null, column: null } : held);
    };
    const node = shape("g", {
      class: "token", tabindex: isChosen || (!one && order === 0 && side === "target") || document.activeElement?.dataset?.key === key ? 0 : -1,
      role: "button", "aria-pressed": String(isChosen), "aria-label": word(place.token), "data-key": key,
      onpointerenter: (event) => event.pointerType === "mouse" && !isChosen && hover({ side, index: place.index }),
      onclick: hold,
      onkeydown: (event) => event.key === "Enter" && hold(),
    });
    const strength = isChosen ? 1 : weight ?? 0;
    node.append(
      shape("rect", { x: place.left, y: place.y - 15, width: place.width, height: 30, rx: 8,
        fill: isChosen ? ink("chosen") : ink("chosen-soft"), "fill-opacity": (isChosen ? 1 : Math.min(1, strength * 1.2)).toFixed(3) }),
      shape("text", { x: place.left + place.width / 2, y: place.y + 6, "text-anchor": "middle",
        fill: isChosen ? ink("paper") : weight !== null && weight < LEAST ? ink("quiet") : ink("ink") }, place.text));
    if (weight !== null && weight >= LEAST) {
      node.append(shape("text", { ...plan.note(place, side === "source"), "font-size": 12, fill: ink("chosen") }, percent(weight)));
    }
    return node;
  }

  box.addEventListener("pointerleave", () => hovered && hover(null));
  box.addEventListener("pointermove", (event) => hovered && !event.target.closest(".token") && hover(null));

  function update() {
    hovered = null;
    draw();
  }

  function key(event) {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step) return false;
    const next = (value, length) => (value === null ? (step > 0 ? 0 : length - 1) : clamp(value + step, 0, length - 1));
    const onSource = state.row === null && state.column !== null;
    change(onSource ? { column: next(state.column, site().sources.length) } : { row: next(state.row, site().targets.length), column: null });
    return true;
  }

  return { update, key, picture };
}
