// What was watched: sites, their words, and the weights of any row at any temperature.

import { byId } from "./dom.js";
import { gridsOf } from "./grids.js";

export const facts = JSON.parse(byId("facts").textContent);

export function bytesOf(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const letters = atob(text);
  const bytes = new Uint8Array(letters.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = letters.charCodeAt(i);
  return bytes;
}

class Site {
  constructor(about, blob) {
    this.name = about.name;
    this.heads = about.heads;
    this.first = about.first; // rows before it were left out
    this.targets = facts.texts[about.targets];
    this.sources = facts.texts[about.sources];
    this.rows = gridsOf(facts.axes[about.targets], facts.pictures); // the pictures among the rows …
    this.columns = gridsOf(facts.axes[about.sources], facts.pictures); // … and among the columns
    this.isOwn = about.targets === about.sources; // places that look at themselves and at each other
    this.floor = about.floor;
    this.steps = about.steps; // what is known of its vectors
    this.blob = blob;
    this.unpacked = null;
    this.tables = new Map();
    const path = about.name.split(".");
    const place = path.findLastIndex((part) => /^\d+$/.test(part));
    this.layer = place < 0 ? 0 : Number(path[place]);
    // "decoder.blocks.3.cross" is layer 3 of "decoder cross": a number, and what it counts, name no kind.
    this.kind = (place < 0 ? path : path.filter((_, i) => i !== place && i !== place - 1)).join(" ") || "attention";
  }

  get hasPicture() {
    return this.rows.length + this.columns.length > 0;
  }

  get isMean() {
    return this.heads[0] === -1;
  }

  get codes() {
    if (!this.unpacked) {
      const bytes = bytesOf(this.blob.textContent);
      this.unpacked = facts.bits === 16 ? new Uint16Array(bytes.buffer, 0, bytes.length >> 1) : bytes;
      this.blob.textContent = "";
    }
    return this.unpacked;
  }

  // By code, exp(log-weight / temperature); the inverse of `pack` in page.py.
  powers(temperature) {
    if (!this.tables.has(temperature)) {
      const highest = (1 << facts.bits) - 1;
      const table = new Float32Array(highest + 1);
      for (let code = 1; code <= highest; code++) {
        table[code] = Math.exp((this.floor * ((highest - code) / (highest - 1)) ** 2) / temperature);
      }
      if (this.tables.size > 2) this.tables.clear();
      this.tables.set(temperature, table);
    }
    return this.tables.get(temperature);
  }

  // The weights of one row; `head` counts from 0 among those there are, null is their mean.
  row(head, target, temperature, into = new Float32Array(this.sources.length)) {
    into.fill(0);
    const heads = head === null ? this.heads.map((_, i) => i) : [head];
    for (const each of heads) this.add(each, target, temperature, into, 1 / heads.length);
    return into;
  }

  add(head, target, temperature, into, share) {
    const { codes, sources: { length } } = this;
    const start = (head * this.targets.length + target) * length;
    const plain = this.powers(1);
    let factor = share;
    let powers = plain;
    if (temperature !== 1) {
      powers = this.powers(temperature);
      let before = 0;
      let after = 0;
      for (let i = 0; i < length; i++) {
        before += plain[codes[start + i]];
        after += powers[codes[start + i]];
      }
      factor *= after ? before / after : 0; // what a row sums to stays: of a part of a row it is less than one
    }
    for (let i = 0; i < length; i++) into[i] += powers[codes[start + i]] * factor;
  }

  column(head, source, temperature) {
    const buffer = new Float32Array(this.sources.length);
    return Float32Array.from(this.targets, (_, i) => this.row(head, i, temperature, buffer)[source]);
  }

  headName(head) {
    if (head === null || this.isMean) return "mean of heads";
    return `head ${this.heads[head]}`;
  }
}

const blobs = document.querySelectorAll("script.weights");
export const sites = facts.sites.map((about, i) => new Site(about, blobs[i]));
export const kinds = [...new Set(sites.map((site) => site.kind))];
export const choices = facts.output ? facts.output.choices : [];

const same = (some, others) => some.length === others.length && some.every((each, i) => each === others[i]);

// Whether its rows are the tokens of the output, so that a step of the output is a row.
export const speaks = (site) => choices.length > 0 && same(site.targets, choices.map((choice) => choice.token));
// What a row could have said; or, where one answer is given to the whole input, what that could have been.
export const choiceAt = (site, row) => (speaks(site) ? choices[row] : choices.length === 1 && !sites.some(speaks) ? choices[0] : null);

// Whether rows and columns are two texts, and not one text, or one text moved by a token.
const faces = (site) => !same(site.targets, site.sources) && !same(site.targets.slice(0, -1), site.sources.slice(1));

// The last attention between two texts, as translation has it; else the last one.
const facing = sites.findLastIndex(faces);
export const favourite = facing < 0 ? sites.length - 1 : facing;
