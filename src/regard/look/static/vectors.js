// The vectors of an attention, and the six steps from them for one head and one word.

import { bytesOf, sites } from "./record.js";

class Vectors {
  constructor(site, about, blob) {
    Object.assign(this, { site, about, blob, unpacked: null });
  }

  // As `Vectors.pack` of vectors.py lays them out.
  get arrays() {
    if (this.unpacked) return this.unpacked;
    const bytes = bytesOf(this.blob.textContent);
    this.blob.textContent = "";
    const { heads, targets: { length: rows }, sources: { length: columns } } = this.site;
    const { shared, head, value, scores, bias } = this.about;
    let start = 0;
    const next = (count) => new Float32Array(bytes.buffer, 4 * (start += count) - 4 * count, count);
    const pairs = heads.length * rows * columns;
    this.unpacked = {
      queries: next(heads.length * rows * head), keys: next(shared * columns * head), values: next(shared * columns * value),
      scores: scores ? next(pairs) : null, bias: bias ? next(pairs) : null, differences: next(heads.length * rows),
      seen: bytes.subarray(4 * start),
    };
    return this.unpacked;
  }

  // `head` counts from 0 among those there are; the temperature is the page's, on top of the model's own.
  steps(head, row, temperature) {
    const { queries, keys, values, scores, bias, differences, seen } = this.arrays;
    const { groups, divisors, head: wide, value: deep } = this.about;
    const { targets: { length: rows }, sources: { length: columns } } = this.site;
    const part = (array, place, length) => array.subarray(place * length, (place + 1) * length);
    const line = head * rows + row;
    const query = part(queries, line, wide);
    const key = (j) => part(keys, groups[head] * columns + j, wide);
    const value = (j) => part(values, groups[head] * columns + j, deep);
    const all = Array.from({ length: columns }, (_, j) => j);
    const isSeen = all.map((j) => (seen[(row * columns + j) >> 3] >> (7 - ((row * columns + j) & 7))) & 1);
    const scored = scores ? part(scores, line, columns) : all.map((j) => key(j).reduce((sum, number, i) => sum + number * query[i], 0));
    const divided = all.map((j) => scored[j] / divisors[head]);
    const added = bias ? all.map((j) => divided[j] + bias[line * columns + j]) : divided;
    const degrees = this.about.temperature * temperature;
    const logits = added.map((number) => number / degrees);
    const most = Math.max(...all.filter((j) => isSeen[j]).map((j) => logits[j]));
    const powers = all.map((j) => (isSeen[j] ? Math.exp(logits[j] - most) : 0));
    const total = powers.reduce((sum, power) => sum + power, 0);
    const weights = powers.map((power) => (total ? power / total : 0));
    const sumOf = (some) => some.reduce((sums, j) => {
      value(j).forEach((number, i) => { sums[i] += weights[j] * number; });
      return sums;
    }, new Float64Array(deep));
    return {
      query, key, value, isSeen, scores: scored, divisor: divisors[head], divided, added, degrees, logits, weights,
      part: (j) => sumOf([j]), sumOf, sum: sumOf(all), difference: differences[line], hasBias: Boolean(bias),
      formula: this.about.formula, name: this.about.score, projected: this.about.projected,
    };
  }
}

const packed = document.querySelectorAll("script.vectors");
export const vectors = new Map(sites.filter((site) => site.steps).map((site, i) => [site, new Vectors(site, site.steps, packed[i])]));
