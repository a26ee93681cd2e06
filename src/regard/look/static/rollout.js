// Attention rollout of one place through all layers up to one: as `rollout.py` defines it, but for one row or column,
// which takes a product of a vector with a matrix per layer, and no product of matrices.

import { sites } from "./record.js";

// The layers from the first to this one; null if one is missing or sees other places than its own.
export function stackOf(site) {
  const layers = sites.filter((each) => each.kind === site.kind && each.layer <= site.layer);
  const isWhole = layers.every((each, i) => each.layer === i && each.isOwn && each.targets.length === site.targets.length);
  return isWhole ? layers : null;
}

// The newest means over heads, whole: each is used by every row, every column and every later layer.
const means = new Map();
const MOST_MEANS = 64;

function meanOf(site, temperature) {
  const key = `${site.name}|${temperature}`;
  if (!means.has(key)) {
    const size = site.sources.length;
    const mean = new Float32Array(size * size);
    for (let row = 0; row < size; row++) site.row(null, row, temperature, mean.subarray(row * size, (row + 1) * size));
    if (means.size >= MOST_MEANS) means.delete(means.keys().next().value);
    means.set(key, mean);
  }
  return means.get(key);
}

// Of row i of a layer: the shares of its mean and of itself, which sum to 1 with the mean's weights.
function sharesOf(mean, size, identity, i) {
  let total = 0;
  for (let j = 0; j < size; j++) total += mean[i * size + j];
  const all = (1 - identity) * total + identity;
  return all ? [(1 - identity) / all, identity / all] : [0, 0];
}

export function rolledRow(site, row, identity, temperature) {
  const size = site.sources.length;
  let through = new Float64Array(size);
  through[row] = 1;
  for (const layer of stackOf(site).toReversed()) {
    const mean = meanOf(layer, temperature);
    const next = new Float64Array(size);
    for (let i = 0; i < size; i++) {
      if (!through[i]) continue;
      const [others, own] = sharesOf(mean, size, identity, i).map((share) => share * through[i]);
      for (let j = 0; j < size; j++) next[j] += others * mean[i * size + j];
      next[i] += own;
    }
    through = next;
  }
  return through;
}

export function rolledColumn(site, column, identity, temperature) {
  const size = site.sources.length;
  let through = new Float64Array(size);
  through[column] = 1;
  for (const layer of stackOf(site)) {
    const mean = meanOf(layer, temperature);
    const next = new Float64Array(size);
    for (let i = 0; i < size; i++) {
      const [others, own] = sharesOf(mean, size, identity, i);
      let sum = own * through[i];
      for (let j = 0; j < size; j++) sum += others * mean[i * size + j] * through[j];
      next[i] = sum;
    }
    through = next;
  }
  return through;
}
