// The six steps of one head for one word, with the model's own numbers: project, score, divide, softmax, weigh, sum.

import { signed } from "./colours.js";
import { clamp, element, FONT, ink, percent, quoted, shape, short, word } from "./dom.js";
import { sites } from "./record.js";
import { change, site, state } from "./state.js";
import { vectors } from "./vectors.js";

const LINE_OF_SIX = 26; // pixels of a row in a drawing
const KEYS_SHOWN = 40; // of more, those with the most weight; the rest is one row
const WORDS_SHOWN = 60; // to choose from, around the chosen one
const figure = (number) => (Math.abs(number) < 5e-5 ? 0 : number).toFixed(4).replace("-", "−");
const lowered = (text, low) => text.split(/_(\w)/).map((part, i) => (i % 2 ? low(part) : part));
const formulaOf = (text) => lowered(text, (part) => element("sub", {}, part));
const list = (length) => Array.from({ length }, (_, i) => i);
const largestOf = (some) => Math.max(1e-9, ...some.map((vector) => vector.reduce((most, number) => Math.max(most, Math.abs(number)), 0)));

// What stands in the table: a vector, a number or a weight for each key, and the step that gives it.
function columnsOf(steps) {
  const d = Math.round(steps.divisor ** 2);
  const found = [
    { step: 1, name: "key", formula: steps.projected ? "k = x W_k" : "k = h", vector: steps.key, scale: "asked" },
    { step: 1, name: "value", formula: steps.projected ? "v = x W_v" : "v = h", vector: steps.value, scale: "given" },
    { step: 2, name: "score", formula: `s = ${steps.formula}`, number: steps.scores },
  ];
  if (steps.divisor !== 1) found.push({ step: 3, name: "divide", formula: `s ÷ √${d}`, number: steps.divided });
  if (steps.hasBias) found.push({ step: null, name: "add", formula: "+ bias of the position", number: steps.added });
  if (steps.degrees !== 1) found.push({ step: null, name: "temperature", formula: `÷ ${Number(steps.degrees.toFixed(3))}`, number: steps.logits });
  found.push({ step: 4, name: "softmax", formula: "w = eˢ ÷ Σ eˢ", weight: steps.weights });
  found.push({ step: 5, name: "weigh", formula: "w · v", vector: steps.part, scale: "given", isPart: true });
  return found;
}

function rowsOf(steps, { sources }) {
  const all = list(sources.length);
  if (all.length <= KEYS_SHOWN) return { shown: all, rest: [] };
  const best = new Set(all.toSorted((a, b) => steps.weights[b] - steps.weights[a]).slice(0, KEYS_SHOWN));
  if (state.column !== null) best.add(state.column);
  return { shown: all.filter((j) => best.has(j)), rest: all.filter((j) => !best.has(j)) };
}

export function explain(panel, say) {
  let steps = null; // of what is chosen, or none
  let place = 0; // which number of the vectors is written out
  let written = []; // { vector, number, mark }: what changes with it
  let pointed = null; // the key whose row the pointer is in
  const chips = element("div", { class: "chips", role: "group", "aria-label": "The word of the query" });
  const box = element("div", { class: "scroller", tabindex: 0, role: "region", "aria-label": "Six steps" });
  panel.append(chips, box);

  const here = () => state.row ?? 0;
  const known = () => vectors.get(site());
  const wide = () => Math.max(site().steps.head, site().steps.value);

  // The mean of heads has no steps of its own, and not every attention's vectors need be here.
  function enter() {
    if (!known()) change({ site: sites.findLastIndex((each) => vectors.has(each)) });
    if (state.head === null) change({ head: 0 });
  }

  function update() {
    pointed = null;
    chips.replaceChildren(...words());
    written = [];
    steps = known() && state.head !== null ? known().steps(state.head, here(), state.temperature) : null;
    if (!steps) {
      box.replaceChildren();
      return say(known() ? "A mean of heads has no six steps: choose a head." : "The vectors of this attention are not in the page: choose another layer.");
    }
    const focused = box.contains(document.activeElement) ? document.activeElement.dataset.key : null;
    place = Math.min(place, wide() - 1);
    box.replaceChildren(...table());
    if (focused) box.querySelector(`[data-key="${focused}"]`)?.focus();
    return point(place);
  }

  function words() {
    const { targets } = site();
    const start = Math.floor(here() / WORDS_SHOWN) * WORDS_SHOWN;
    const chip = (_, i) => element("button", { type: "button", "aria-pressed": String(start + i === here()), onclick: () => change({ row: start + i }) }, short(targets[start + i]));
    const part = start || targets.length > WORDS_SHOWN ? [element("small", {}, `${start + 1} to ${Math.min(targets.length, start + WORDS_SHOWN)} of ${targets.length.toLocaleString("en")}`)] : [];
    return [...Array.from({ length: Math.min(WORDS_SHOWN, targets.length - start) }, chip), ...part];
  }

  function table() {
    const columns = columnsOf(steps);
    const { shown, rest } = rowsOf(steps, site());
    const limits = limitsOf(shown);
    const cellOf = (column, j) => {
      if (column.number) return element("td", { class: "figure" }, figure(column.number[j]));
      if (!steps.isSeen[j] && (column.weight || column.isPart)) return element("td", { class: "figure quiet" }, column.weight ? "hidden" : "");
      if (column.weight) return weightCell(column.weight[j]);
      return vectorCell(column.vector(j), limits[column.scale], `${column.name} of ${word(site().sources[j])}`);
    };
    const head = columns.map(({ step, name, formula }) => element("th", { scope: "col" }, heading(step, name), element("small", {}, ...formulaOf(formula))));
    const rows = shown.map((j) => element("tr", { "data-row": j, class: state.column === j ? "chosen" : null },
      element("th", { scope: "row" }, element("button", { type: "button", "data-key": j, "aria-pressed": String(state.column === j), onclick: () => change({ column: state.column === j ? null : j }) }, short(site().sources[j]))),
      ...columns.map((column) => cellOf(column, j))));
    if (rest.length) rows.push(restRow(columns, rest, limits));
    const skipped = (count) => (count > 0 ? [element("td", { colspan: count })] : []);
    const asks = element("tr", { class: "asks" }, element("th", { scope: "row" }, heading(1, "query"), element("small", {}, ...formulaOf(steps.projected ? "q = x W_q" : "q = s"))),
      vectorCell(steps.query, limits.asked, `query of ${word(site().targets[here()])}`), element("td", { colspan: columns.length - 1, class: "note" }, `${quoted(site().targets[here()])} asks with q`));
    const sum = element("tr", {}, element("th", { scope: "row" }, heading(6, "sum"), element("small", {}, "z = Σ w · v")),
      ...skipped(columns.length - 2), element("td", { class: "figure" }, figure(steps.weights.reduce((total, weight) => total + weight, 0))), vectorCell(steps.sum, limits.given, "sum"));
    const title = `${site().kind}, layer ${site().layer}, ${site().headName(state.head)}: ${steps.name}, d_k = ${steps.divisor === 1 ? site().steps.head : Math.round(steps.divisor ** 2)}`;
    return [element("table", { class: "six" }, element("caption", {}, ...formulaOf(title)), element("thead", {}, element("tr", {}, element("th", { scope: "col" }, ""), ...head)),
      element("tbody", {}, asks, ...rows), element("tfoot", {}, sum)), element("p", { class: "note" }, `${ownOutput()} ${missing()}`.trim(), element("br"), element("span", { class: "which" }))];
  }

  const heading = (step, name) => element("span", { class: "step" }, ...(step ? [element("b", {}, String(step))] : []), name);

  // Key and query have one scale of colours, values and what becomes of them another.
  const limitsOf = (shown) => ({ asked: largestOf([steps.query, ...shown.map(steps.key)]), given: largestOf(shown.map(steps.value)) });

  function ownOutput() {
    if (state.temperature !== 1) return `The temperature is set to ${state.temperature.toFixed(2)}; at 1 the sum is the model's own output.`;
    return `The model's own output of this head differs from the sum by at most ${steps.difference.toExponential(1).replace("-", "−")}.`;
  }

  const missing = () => (steps.divisor === 1 ? `There is no step 3: the score ${steps.name} has no √d.` : "");

  function weightCell(weight) {
    const bar = element("span", { class: "bar-of", "aria-hidden": "true" });
    bar.style.width = `${100 * weight}%`;
    return element("td", {}, element("div", { class: "weight" }, element("span", { class: "track" }, bar), element("span", { class: "figure" }, figure(weight))));
  }

  function vectorCell(vector, limit, label) {
    const canvas = element("canvas", { width: vector.length, height: 1, "aria-hidden": "true" });
    const pen = canvas.getContext("2d");
    vector.forEach((number, i) => {
      pen.fillStyle = signed(number / limit);
      pen.fillRect(i, 0, 1, 1);
    });
    const [mark, number] = [element("span", { class: "mark" }), element("span", { class: "figure" })];
    written.push({ vector, mark, number });
    const range = `${vector.length} numbers from ${figure(Math.min(...vector))} to ${figure(Math.max(...vector))}`;
    return element("td", {}, element("div", { class: "vector" }, element("div", { class: "strip", role: "img", "aria-label": `${label}: ${range}` }, canvas, mark), number));
  }

  function restRow(columns, rest, limits) {
    const weight = rest.reduce((sum, j) => sum + steps.weights[j], 0);
    return element("tr", { class: "rest" }, element("th", { scope: "row" }, `${rest.length.toLocaleString("en")} others`), ...columns.map((column) => {
      if (column.weight) return weightCell(weight);
      return column.isPart ? vectorCell(steps.sumOf(rest), limits.given, "parts of the others") : element("td", {});
    }));
  }

  function point(number) {
    place = clamp(number, 0, wide() - 1);
    for (const { vector, mark, number: node } of written) {
      const i = Math.min(place, vector.length - 1);
      node.textContent = figure(vector[i]);
      mark.style.left = `${(100 * (i + 0.5)) / vector.length}%`;
    }
    const which = box.querySelector(".which");
    if (which) which.textContent = `A strip is a vector, orange below zero and blue above; beside it stands its number ${place + 1} of ${wide()}. Point at a strip for another, or press shift and ← →.`;
    announce();
  }

  function announce() {
    const strongest = steps.weights.indexOf(Math.max(...steps.weights));
    const j = pointed ?? state.column ?? strongest;
    const [asks, key] = [quoted(site().targets[here()]), quoted(site().sources[j])];
    if (!steps.isSeen[j]) return say(`${asks} may not see ${key}.`);
    const of = (vector) => figure(vector[Math.min(place, vector.length - 1)]);
    return say(`${asks} ${j === strongest ? "looks most at" : "looks at"} ${key}: score ${figure(steps.scores[j])}, weight ${percent(steps.weights[j])}. `
      + `Number ${place + 1}: q ${of(steps.query)}, k ${of(steps.key(j))}, v ${of(steps.value(j))}, w · v ${of(steps.part(j))}, z ${of(steps.sum)}.`);
  }

  box.addEventListener("pointermove", (event) => {
    const strip = event.target.closest(".strip");
    if (!strip) return;
    const { left, width } = strip.getBoundingClientRect();
    const row = strip.closest("tr").dataset.row;
    pointed = row === undefined ? null : Number(row);
    point(Math.floor(((event.clientX - left) / width) * strip.querySelector("canvas").width));
  });
  box.addEventListener("pointerleave", () => {
    pointed = null;
    if (written.length) announce();
  });

  function key(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const down = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const next = (value, length) => (value === null ? (down > 0 ? 0 : length - 1) : clamp(value + down, 0, length - 1));
    if (step && event.shiftKey) point(place + step);
    else if (step) change({ row: clamp(here() + step, 0, site().targets.length - 1) });
    else if (down) change({ column: next(state.column, site().sources.length) });
    else if (event.key === "Home") change({ row: 0 });
    else if (event.key === "End") change({ row: site().targets.length - 1 });
    else return false;
    return true;
  }

  // The same as a drawing.
  function picture() {
    const root = shape("svg", { "font-family": FONT, "font-size": 13, fill: ink("ink") });
    const columns = steps ? columnsOf(steps) : [];
    const { shown, rest } = steps ? rowsOf(steps, site()) : { shown: [], rest: [] };
    const limits = steps ? limitsOf(shown) : {};
    const starts = columns.map((_, i) => columns.slice(0, i).reduce((x, column) => x + (column.vector ? 210 : 104), 130));
    const [width, height] = [(starts.at(-1) ?? 90) + 210, 96 + (shown.length + 2 + (rest.length ? 1 : 0)) * LINE_OF_SIX];
    const text = (x, y, content, more = {}) => root.append(shape("text", { x, y, ...more }, content));
    const strip = (vector, x, y, limit) => {
      vector.forEach((number, i) => root.append(shape("rect", { x: x + (128 * i) / vector.length, y: y - 11, width: 128 / vector.length + 0.2, height: 14, fill: signed(number / limit) })));
      text(x + 190, y, figure(vector[Math.min(place, vector.length - 1)]), { "text-anchor": "end" });
    };
    text(12, 24, `${word(site().targets[here()])}: ${site().kind}, layer ${site().layer}, ${site().headName(state.head)}`, { "font-size": 15 });
    let y = 56;
    columns.forEach(({ step, name, formula }, i) => {
      text(starts[i], y, `${step ?? ""} ${name}`.trim(), { "font-weight": 600 });
      root.append(shape("text", { x: starts[i], y: y + 17, fill: ink("quiet") }, ...lowered(formula, (part) => shape("tspan", { "baseline-shift": "sub", "font-size": 10 }, part))));
    });
    y += 17 + LINE_OF_SIX;
    const lines = steps ? [{ label: "1 query q", at: [[0, steps.query, limits.asked]] },
      ...shown.map((j) => ({ label: short(site().sources[j]), j })),
      ...(rest.length ? [{ label: `${rest.length} others`, at: [[columns.length - 1, steps.sumOf(rest), limits.given]] }] : []),
      { label: "6 sum z = Σ w · v", at: [[columns.length - 1, steps.sum, limits.given]] }] : [];
    for (const { label, j, at } of lines) {
      text(12, y, label);
      for (const [i, vector, limit] of at ?? []) strip(vector, starts[i], y, limit);
      if (j !== undefined) {
        columns.forEach((column, i) => {
          if (column.vector) { if (steps.isSeen[j] || !column.isPart) strip(column.vector(j), starts[i], y, limits[column.scale]); }
          else text(starts[i] + 80, y, column.weight && !steps.isSeen[j] ? "hidden" : figure((column.number ?? column.weight)[j]), { "text-anchor": "end" });
        });
      }
      y += LINE_OF_SIX;
    }
    for (const [name, value] of Object.entries({ width, height, viewBox: `0 0 ${width} ${height}` })) root.setAttribute(name, value);
    return root;
  }

  return { enter, update, key, picture };
}
