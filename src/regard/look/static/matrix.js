// One head as a matrix that can be moved and enlarged. Each frame reads the tones of the pixels it shows, and no others.

import { onTone, palette, toner } from "./colours.js";
import { clamp, element, FONT, ink, percent, quoted, shape, short, widthOf } from "./dom.js";
import { gestures } from "./gestures.js";
import { drawLegend } from "./legend.js";
import { canvasOf, paintingOf } from "./painting.js";
import { change, scale, site, state } from "./state.js";

const LETTERS = 13;
const LARGEST = 64; // pixels of a cell
const NAMED = 14; // pixels from which a cell has its words beside it
const WRITTEN = 34; // … and its weight in it

export function matrix(panel, say) {
  const canvas = element("canvas", { tabindex: 0, role: "application", "aria-label": "Matrix of weights" });
  const box = element("div", { class: "matrix" }, canvas);
  const legend = element("div", { class: "legend", role: "img" });
  const button = (label, text, act) => element("button", { type: "button", "aria-label": label, title: label, onclick: act }, text);
  panel.append(box, element("div", { class: "under" }, legend, element("div", { class: "tools" },
    button("Zoom out", "−", () => zoom(1 / 1.5)), button("Fit", "fit", () => fit()), button("Zoom in", "+", () => zoom(1.5)))));
  const context = canvas.getContext("2d", { alpha: false });
  let view = null; // { x, y: the cell at the upper left corner; across, down: pixels of a cell }
  let seen = ""; // the site that the view is of
  let margin = { left: 0, top: 0 };
  let pending = false;
  let image = null;
  let over = null;

  new ResizeObserver(() => { if (!panel.hidden) { resize(); update(); } }).observe(box);

  function resize() {
    const ratio = devicePixelRatio;
    canvas.width = Math.round(box.clientWidth * ratio);
    canvas.height = Math.round(box.clientHeight * ratio);
    image = null;
    seen = "";
  }

  function update() {
    if (!canvas.width || canvas.width !== Math.round(box.clientWidth * devicePixelRatio)) resize();
    if (seen !== site().name) {
      seen = site().name;
      fit();
    }
    drawLegend(legend, scale(), site().sources.length);
    schedule();
    if (state.row !== null && state.column !== null) announce({ row: state.row, column: state.column });
    else say(`${site().name}, ${site().headName(state.head)}: ${site().targets.length.toLocaleString("en")} × ${site().sources.length.toLocaleString("en")}. Drag to move, turn the wheel to enlarge.`);
  }

  function schedule() {
    if (pending) return;
    pending = true;
    requestAnimationFrame(() => { pending = false; draw(); });
  }

  const room = () => ({ width: box.clientWidth - margin.left - 8, height: box.clientHeight - margin.top - 8 });

  function fit() {
    const { targets, sources } = site();
    const widest = (tokens) => Math.min(130, Math.max(...tokens.slice(0, 300).map((token) => widthOf(short(token), LETTERS)))) + 14;
    margin = { left: widest(targets), top: widest(sources) };
    const { width, height } = room();
    const cell = Math.min(width / sources.length, height / targets.length, LARGEST);
    // A few rows of many columns would be a hair: they may be higher than they are wide.
    const visible = (count) => Math.max(cell, Math.min(24, 60 / count));
    view = { x: 0, y: 0, across: visible(sources.length), down: visible(targets.length) };
    settle();
    schedule();
  }

  // The picture stays in its window; what is narrower than it stands in the middle.
  function settle() {
    const { width, height } = room();
    const [spareX, spareY] = [site().sources.length - width / view.across, site().targets.length - height / view.down];
    view.x = spareX <= 0 ? spareX / 2 : clamp(view.x, 0, spareX);
    view.y = spareY <= 0 ? 0 : clamp(view.y, 0, spareY);
  }

  function zoom(factor, px = margin.left + room().width / 2, py = margin.top + room().height / 2) {
    const least = Math.min(room().width / site().sources.length, room().height / site().targets.length, LARGEST);
    const real = clamp(factor, least / Math.min(view.across, view.down), LARGEST / Math.max(view.across, view.down));
    view.x += ((px - margin.left) / view.across) * (1 - 1 / real);
    view.y += ((py - margin.top) / view.down) * (1 - 1 / real);
    view.across *= real;
    view.down *= real;
    settle();
    schedule();
  }

  function move(dx, dy) {
    view.x -= dx / view.across;
    view.y -= dy / view.down;
    settle();
    schedule();
  }

  function cellAt(event) {
    const { left, top } = canvas.getBoundingClientRect();
    const column = Math.floor(view.x + (event.clientX - left - margin.left) / view.across);
    const row = Math.floor(view.y + (event.clientY - top - margin.top) / view.down);
    const isInside = column >= 0 && row >= 0 && column < site().sources.length && row < site().targets.length
      && event.clientX - left >= margin.left && event.clientY - top >= margin.top;
    return isInside ? { row, column } : null;
  }

  function announce({ row, column }) {
    const weight = site().row(state.head, row, state.temperature)[column];
    say(`${quoted(site().targets[row])} (${row}) looks at ${quoted(site().sources[column])} (${column}): ${percent(weight)}`);
  }

  // Which level's column or row each pixel shows; −1 is none.
  function indices(pixels, start, size, count, level) {
    const found = new Int32Array(pixels);
    const isOpen = size >= 8 * devicePixelRatio; // cells large enough to have a line between them
    for (let i = 0; i < pixels; i++) {
      const cell = start + (i + 0.5) / size;
      const isLine = isOpen && (cell - Math.floor(cell)) * size < 1;
      found[i] = cell < 0 || cell >= count || isLine ? -1 : Math.floor(cell) >> level;
    }
    return found;
  }

  function draw() {
    if (panel.hidden || !view) return;
    const ratio = devicePixelRatio;
    const left = Math.round(margin.left * ratio);
    const top = Math.round(margin.top * ratio);
    const width = canvas.width - left;
    const height = canvas.height - top;
    if (width < 1 || height < 1) return;
    if (image?.width !== width || image?.height !== height) image = context.createImageData(width, height);
    const painting = paintingOf(site(), state.head, state.temperature, scale());
    const crowd = 1 / (Math.min(view.across, view.down) * ratio);
    const level = clamp(Math.ceil(Math.log2(crowd)), 0, painting.levels.length - 1);
    const { tones, width: stride } = painting.levels[level];
    const columns = indices(width, view.x, view.across * ratio, site().sources.length, level);
    const rows = indices(height, view.y, view.down * ratio, site().targets.length, level);
    const pixels = new Uint32Array(image.data.buffer);
    const colours = palette();
    const paper = numberOf(ink("paper"));
    for (let y = 0, i = 0; y < height; y++) {
      if (rows[y] < 0) {
        pixels.fill(paper, i, i + width);
        i += width;
        continue;
      }
      const start = rows[y] * stride;
      for (let x = 0; x < width; x++, i++) pixels[i] = columns[x] < 0 ? paper : colours[tones[start + columns[x]]];
    }
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.fillStyle = ink("paper");
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.putImageData(image, left, top);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    frame();
    marks();
    words();
    numbers();
  }

  const across = (column) => margin.left + (column - view.x) * view.across;
  const down = (row) => margin.top + (row - view.y) * view.down;

  function frame() {
    const x = Math.max(margin.left, across(0));
    const y = Math.max(margin.top, down(0));
    context.strokeStyle = ink("line");
    context.lineWidth = 1;
    context.strokeRect(x - 0.5, y - 0.5, Math.min(across(site().sources.length), box.clientWidth) - x + 1,
      Math.min(down(site().targets.length), box.clientHeight) - y + 1);
  }

  // A frame around the row, the column and the cell that are chosen.
  function marks() {
    context.save();
    context.beginPath();
    context.rect(margin.left - 1, margin.top - 1, box.clientWidth, box.clientHeight);
    context.clip();
    context.strokeStyle = ink("chosen");
    const right = across(site().sources.length) - across(0);
    const bottom = down(site().targets.length) - down(0);
    const one = over ?? state;
    context.lineWidth = 1.5;
    if (one.row !== null) context.strokeRect(across(0), down(one.row), right, Math.max(2, view.down));
    if (one.column !== null) context.strokeRect(across(one.column), down(0), Math.max(2, view.across), bottom);
    context.restore();
  }

  function shownOf(start, room, size, count) {
    const first = Math.max(0, Math.floor(start));
    const last = Math.min(count - 1, Math.floor(start + room / size));
    // When there is no room for each, every so many is named, by a round number.
    const step = size >= NAMED ? 1 : [2, 5, 10].flatMap((n) => [n, n * 10, n * 100, n * 1000]).sort((a, b) => a - b).find((n) => n * size >= 60) ?? count;
    const all = [];
    for (let i = Math.ceil(first / step) * step; i <= last; i += step) all.push(i);
    return { all, isEach: step === 1 };
  }

  const name = (tokens, i, { isEach }) => (isEach ? short(tokens[i]) : i.toLocaleString("en"));

  function words() {
    const one = over ?? state;
    context.font = `${LETTERS}px ${FONT}`;
    context.textBaseline = "middle";
    const { width, height } = room();
    const rows = shownOf(view.y, height, view.down, site().targets.length);
    context.textAlign = "right";
    for (const row of rows.all) {
      const y = down(row + 0.5);
      if (y < margin.top) continue;
      context.fillStyle = ink(one.row === row ? "chosen" : "ink");
      context.fillText(name(site().targets, row, rows), Math.max(margin.left, across(0)) - 7, y, margin.left - 10);
    }
    const columns = shownOf(view.x, width, view.across, site().sources.length);
    context.textAlign = "left";
    for (const column of columns.all) {
      const x = across(column + 0.5);
      if (x < margin.left) continue;
      context.save();
      context.translate(x, Math.max(margin.top, down(0)) - 7);
      context.rotate(-Math.PI / 2);
      context.fillStyle = ink(one.column === column ? "chosen" : "ink");
      context.fillText(name(site().sources, column, columns), 0, 0, margin.top - 10);
      context.restore();
    }
  }

  // The cells whose weights there is room to write, if there is: those that are shown, and not next to nothing.
  function* written() {
    if (Math.min(view.across, view.down) < WRITTEN) return;
    const tone = toner(scale(), site().sources.length);
    const end = (start, size, length, count) => Math.min(count, Math.ceil(start + length / size));
    const lastRow = end(view.y, view.down, room().height, site().targets.length);
    const lastColumn = end(view.x, view.across, room().width, site().sources.length);
    for (let row = Math.max(0, Math.ceil(view.y - 0.2)); row < lastRow; row++) {
      const weights = site().row(state.head, row, state.temperature);
      for (let column = Math.max(0, Math.ceil(view.x - 0.2)); column < lastColumn; column++) {
        const weight = weights[column];
        if (weight >= 0.005) yield { row, column, ink: onTone(tone(weight)), text: weight.toFixed(2).replace(/^0/, "") };
      }
    }
  }

  function numbers() {
    context.textAlign = "center";
    context.font = `12px ${FONT}`;
    for (const cell of written()) {
      context.fillStyle = cell.ink;
      context.fillText(cell.text, across(cell.column + 0.5), down(cell.row + 0.5));
    }
  }

  gestures(canvas, {
    move(dx, dy) {
      over = null;
      move(dx, dy);
    },
    zoom,
    point(event) {
      over = event && cellAt(event);
      if (over) announce(over);
      schedule();
    },
    choose(event) {
      const cell = cellAt(event);
      if (cell) change(cell);
    },
  });

  function key(event) {
    const [dx, dy] = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[event.key] ?? [0, 0];
    if (event.key === "+" || event.key === "=") zoom(1.5);
    else if (event.key === "-") zoom(1 / 1.5);
    else if (event.key === "0") fit();
    else if ((dx || dy) && event.shiftKey) move(-60 * dx, -60 * dy);
    else if (dx || dy) {
      const cell = { row: clamp((state.row ?? -dy) + dy, 0, site().targets.length - 1), column: clamp((state.column ?? -dx) + dx, 0, site().sources.length - 1) };
      change(cell);
      reveal(cell);
    } else return false;
    return true;
  }

  function reveal({ row, column }) {
    const { width, height } = room();
    view.x = clamp(view.x, column + 1 - width / view.across, column);
    view.y = clamp(view.y, row + 1 - height / view.down, row);
    settle();
    schedule();
  }

  // As a picture: the part that is shown, its cells as one image, its words as text.
  function picture() {
    const { width, height } = room();
    const first = { x: Math.max(0, Math.floor(view.x)), y: Math.max(0, Math.floor(view.y)) };
    const count = (start, size, room, all) => Math.min(all, Math.ceil(start + room / size)) - Math.max(0, Math.floor(start));
    const painting = paintingOf(site(), state.head, state.temperature, scale());
    const wanted = { width: count(view.x, view.across, width, site().sources.length), height: count(view.y, view.down, height, site().targets.length) };
    const level = clamp(Math.ceil(Math.log2(1 / Math.min(view.across, view.down))), 0, painting.levels.length - 1);
    const part = canvasOf(cut(painting.levels[level], first, wanted, level), palette());
    const [w, h] = [wanted.width * view.across, wanted.height * view.down];
    const root = shape("svg", { viewBox: `0 0 ${margin.left + w + 12} ${margin.top + h + 12}`, width: margin.left + w + 12,
      height: margin.top + h + 12, "font-family": FONT, "font-size": LETTERS, fill: ink("ink") },
    shape("image", { x: margin.left, y: margin.top, width: w, height: h, href: part.toDataURL(), preserveAspectRatio: "none", "image-rendering": "pixelated" }),
    shape("rect", { x: margin.left, y: margin.top, width: w, height: h, fill: "none", stroke: ink("line") }));
    for (const cell of written()) {
      root.append(shape("text", { x: margin.left + (cell.column - first.x + 0.5) * view.across, y: margin.top + (cell.row - first.y + 0.5) * view.down + 4,
        "text-anchor": "middle", "font-size": 12, fill: cell.ink }, cell.text));
    }
    const rows = shownOf(first.y, h - 1, view.down, site().targets.length);
    for (const row of rows.all) {
      const y = margin.top + (row - first.y + 0.5) * view.down + 4;
      root.append(shape("text", { x: margin.left - 7, y, "text-anchor": "end" }, name(site().targets, row, rows)));
    }
    const columns = shownOf(first.x, w - 1, view.across, site().sources.length);
    for (const column of columns.all) {
      const [x, y] = [margin.left + (column - first.x + 0.5) * view.across + 4, margin.top - 7];
      root.append(shape("text", { x, y, transform: `rotate(-90 ${x} ${y})` }, name(site().sources, column, columns)));
    }
    return root;
  }

  return { update, key, picture };
}

function cut({ tones, width, height }, first, wanted, level) {
  const [x, y] = [first.x >> level, first.y >> level];
  const across = Math.min(width - x, Math.max(1, wanted.width >> level));
  const down = Math.min(height - y, Math.max(1, wanted.height >> level));
  const part = new Uint8Array(across * down);
  for (let row = 0; row < down; row++) part.set(tones.subarray((y + row) * width + x, (y + row) * width + x + across), row * across);
  return { tones: part, width: across, height: down };
}

function numberOf(hex) {
  const [r, g, b] = [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
  return (0xff000000 | (b << 16) | (g << 8) | r) >>> 0;
}
