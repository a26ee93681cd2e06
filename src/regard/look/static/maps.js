// The maps of the view of pictures: which weights are shown for a place, and which other maps stand beside it.

import { percent, quoted } from "./dom.js";
import { gridAt, wordsOf } from "./grids.js";
import { choices, sites } from "./record.js";
import { rolledColumn, rolledRow, stackOf } from "./rollout.js";
import { state } from "./state.js";

const IDENTITY = { rollout: 0.5, product: 0 };

export const hasRollout = (site) => site.isOwn && Boolean(stackOf(site));
const identityOf = (site) => (state.map && hasRollout(site) ? IDENTITY[state.map] : null);
export const isRolled = (site) => identityOf(site) !== null;

// What a row looks at. No row at all is the mean over all of them.
export function lookedAt(site, head, row) {
  if (row === null) return meanOver(site.targets.length, (each) => lookedAt(site, head, each));
  const identity = identityOf(site);
  return identity === null ? site.row(head, row, state.temperature) : rolledRow(site, row, identity, state.temperature);
}

// Which rows look at a column.
export function lookers(site, head, column) {
  const identity = identityOf(site);
  return identity === null ? site.column(head, column, state.temperature) : rolledColumn(site, column, identity, state.temperature);
}

function meanOver(count, row) {
  const sum = Float64Array.from(row(0));
  for (let i = 1; i < count; i++) row(i).forEach((weight, j) => { sum[j] += weight; });
  return sum.map((total) => total / count);
}

export const targetWords = (site) => wordsOf(site.targets, site.rows);
export const sourceWords = (site) => wordsOf(site.sources, site.columns);

// The row to begin with: the first word of the answer, the first after a picture, the first, as a class token, or none.
export function firstRow(site) {
  const start = site.targets.length - choices.length;
  const isAnswer = choices.length > 0 && choices.every(({ token }, i) => site.targets[start + i] === token);
  const words = targetWords(site);
  return isAnswer ? start : words.find((place) => place > (site.rows.at(-1)?.start ?? -1)) ?? words[0] ?? null;
}

export const firstColumn = (site) => (site.columns.length ? null : 0);

export const nameOf = (tokens, grids, place) => (gridAt(grids, place) ? `patch ${tokens[place].trim()}` : quoted(tokens[place]));

// The strongest places by name, and how much lies on the pictures.
export function inWords(tokens, grids, weights) {
  const best = [...weights.keys()].filter((place) => weights[place] > 0).sort((a, b) => weights[b] - weights[a]).slice(0, 3);
  return best.map((place) => `${nameOf(tokens, grids, place)} ${percent(weights[place])}`).join(", ");
}

export const patchesOf = (grid, weights) => weights.slice(grid.start, grid.end);
const highest = (weights) => weights.reduce((high, weight) => Math.max(high, weight), 0);
export const mostOf = (grids, weights) => highest(grids.map((grid) => highest(patchesOf(grid, weights))));
export const shareOf = (grids, weights) => grids.reduce((sum, grid) => sum + patchesOf(grid, weights).reduce((all, weight) => all + weight, 0), 0);

// The strips of small maps: of all words, heads or layers, and of all attentions that have this picture.
export const STRIPS = {
  words: (site, head, { row, column }) => (site.columns.length
    ? targetWords(site).map((place) => frame(site, head, { row: place, column }, site.targets[place].trim(), site.isOwn ? { row: place, column: place } : { row: place }, place === row))
    : sourceWords(site).map((place) => frame(site, head, { row, column: place }, site.sources[place].trim(), { column: place }, place === column))),
  heads: (site, head, places) => (isRolled(site) || site.heads.length < 2 ? []
    : [null, ...site.heads.keys()].map((each) => frame(site, each, places, each === null ? "mean" : site.headName(each), { head: each }, each === head))),
  layers: (site, head, places) => sites.filter((each) => each.kind === site.kind && fits(each, site)).map((each) => (
    frame(each, each.heads.length > 1 ? headAs(each, head) : 0, places, `layer ${each.layer}`, { site: sites.indexOf(each) }, each === site))),
  sites: (site, head, places) => sites.filter((each) => each.kind !== site.kind && fits(each, site)).reduce((found, each) => (
    [...found, frame(each, each.heads.length > 1 ? null : 0, places, nameOfSite(each), { site: sites.indexOf(each) }, false)]),
  [frame(site, head, places, nameOfSite(site), {}, true)]),
};

const nameOfSite = ({ kind, layer }) => `${kind} ${layer}`;

// Whether the map of the same place can be shown of both. Two models may see a picture in patches of two sizes.
const fits = (one, other) => one.targets === other.targets && (one.sources === other.sources || (one.columns.length > 0 && other.columns.length > 0));
const headAs = (site, head) => (head !== null && head < site.heads.length ? head : null);

function frame(site, head, { row, column }, label, change, isShown) {
  const isOfRow = site.columns.length > 0;
  const grids = isOfRow ? site.columns : site.rows;
  return { grids, label, change, isShown, weights: () => (isOfRow ? lookedAt(site, head, row) : lookers(site, head, column)) };
}

export const stripsOf = (site) => Object.keys(STRIPS).filter((name) => STRIPS[name](site, state.head, { row: 0, column: 0 }).length > 1);
