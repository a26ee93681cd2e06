// Three numbers for every head: how spread its weights are, how far they reach, how much the first token gets.

import { element, FONT, ink, percent, shape } from "./dom.js";
import { gridAt } from "./grids.js";
import { kinds, sites } from "./record.js";
import { change, state } from "./state.js";

const COLUMNS = [
  { name: "entropy", unit: "bits", about: "bits; 0 is one token alone", text: (value) => value.toFixed(2) },
  { name: "distance", unit: "tokens", about: `${sites.some((each) => each.hasPicture) ? "tokens or patches" : "tokens"}, on average`, text: (value) => (Number.isNaN(value) ? "–" : value.toFixed(1)) },
  { name: "first token", unit: "share", about: "its share", text: percent },
];

// Means over the rows. A row of zeros, which saw nothing, counts in none of them.
export function measured(site, head, temperature) {
  const sums = [0, 0, 0];
  let rows = 0;
  const weights = new Float32Array(site.sources.length);
  const patches = site.isOwn && site.rows.length > 0; // between them one counts patches
  let counted = 0;
  for (let row = 0; row < site.targets.length; row++) {
    site.row(head, row, temperature, weights);
    let [total, entropy, distance] = [0, 0, 0];
    for (let column = 0; column < weights.length; column++) {
      const weight = weights[column];
      if (weight > 0) {
        total += weight;
        entropy -= weight * Math.log2(weight);
        if (!patches) distance += weight * Math.abs(site.first + row - column);
      }
    }
    if (total > 0) {
      rows++;
      const grid = patches ? gridAt(site.rows, row) : null;
      if (grid) distance = patchDistance(grid, row, weights);
      if (grid || !patches) counted++;
      [entropy, distance, weights[0]].forEach((value, i) => { sums[i] += value; });
    }
  }
  const hasDistance = patches || !site.hasPicture; // from a word to a picture there is none
  return sums.map((sum, i) => (i === 1 && !hasDistance ? NaN : sum / Math.max(i === 1 ? counted : rows, 1)));
}

// As `patch_distance` of measure.py: a class token is no patch, and has no distance.
function patchDistance(grid, place, weights) {
  const own = grid.cellOf(place);
  let [sum, total] = [0, 0];
  for (let other = grid.start; other < grid.end; other++) {
    const { row, column } = grid.cellOf(other);
    sum += weights[other] * Math.hypot(row - own.row, column - own.column);
    total += weights[other];
  }
  return total ? sum / total : 0;
}

export function measures(panel, say) {
  let order = { column: null, isRising: true };
  let found = []; // { site, head, values }
  let foundAt = null;
  let turn = 0;
  const body = element("tbody");
  const heading = (i) => element("th", { scope: "col", "data-column": i },
    element("button", { type: "button", onclick: () => sortBy(i) }, COLUMNS[i].name), element("small", {}, COLUMNS[i].about));
  const table = element("table", {}, element("caption", {}, "Means over all rows, at the current temperature. Choose a head to see it."),
    element("thead", {}, element("tr", {}, element("th", { scope: "col" }, element("button", { type: "button", onclick: () => sortBy(null) }, "head")), ...COLUMNS.keys().map(heading))), body);
  panel.append(element("div", { class: "scroller", tabindex: 0, role: "region", "aria-label": "Measures" }, table));

  function sortBy(column) {
    order = { column, isRising: order.column === column ? !order.isRising : true };
    fill();
  }

  async function update() {
    say("Click on the name of a column to sort by it.");
    if (foundAt !== state.temperature) {
      const mine = ++turn;
      const all = [];
      for (const site of kinds.flatMap((kind) => sites.filter((each) => each.kind === kind))) {
        for (const head of site.heads.keys()) {
          all.push({ site, head, values: measured(site, head, state.temperature) });
          if (site.targets.length * site.sources.length > 1e6) await new Promise((next) => setTimeout(next));
          if (mine !== turn) return;
        }
      }
      found = all;
      foundAt = state.temperature;
    }
    fill();
  }

  const sorted = () => (order.column === null ? found : found.toSorted((a, b) => (a.values[order.column] - b.values[order.column]) * (order.isRising ? 1 : -1)));
  const largest = (i) => (i === 2 ? 1 : Math.max(...found.map(({ values }) => values[i] || 0), 1e-9));

  function fill() {
    body.replaceChildren(...sorted().map(({ site, head, values }) => {
      const isShown = sites[state.site] === site && state.head === head;
      const open = element("button", { type: "button", "aria-current": String(isShown), onclick: () => change({ view: "matrix", site: sites.indexOf(site), head }) },
        element("span", {}, `${site.kind} · `), element("span", {}, `layer ${site.layer} · ${site.headName(head)}`));
      return element("tr", {}, element("th", { scope: "row" }, open), ...values.map((value, i) => {
        const bar = element("span", { class: "bar-of", "aria-hidden": "true" });
        bar.style.width = `${(100 * (value || 0)) / largest(i)}%`;
        return element("td", {}, element("span", { class: "number" }, COLUMNS[i].text(value)), element("span", { class: "track" }, bar));
      }));
    }));
    for (const th of table.querySelectorAll("th[data-column]")) {
      const isThis = Number(th.dataset.column) === order.column;
      th.setAttribute("aria-sort", isThis ? (order.isRising ? "ascending" : "descending") : "none");
    }
  }

  function picture() {
    const rows = sorted();
    const root = shape("svg", { width: 760, height: 44 + rows.length * 24, viewBox: `0 0 760 ${44 + rows.length * 24}`, "font-family": FONT, "font-size": 13, fill: ink("ink") });
    COLUMNS.forEach(({ name, unit }, i) => root.append(shape("text", { x: 280 + i * 160, y: 24, fill: ink("quiet") }, `${name} (${unit})`)));
    rows.forEach(({ site, head, values }, r) => {
      const y = 48 + r * 24;
      root.append(shape("text", { x: 12, y }, `${site.kind} · layer ${site.layer} · ${site.headName(head)}`));
      values.forEach((value, i) => root.append(
        shape("rect", { x: 330 + i * 160, y: y - 11, width: (90 * (value || 0)) / largest(i), height: 12, rx: 3, fill: ink("accent"), "fill-opacity": 0.6 }),
        shape("text", { x: 322 + i * 160, y, "text-anchor": "end" }, COLUMNS[i].text(value))));
    });
    return root;
  }

  return { update, key: () => false, picture };
}
