// One head's weights as tones, at full size and halved again and again, so that any part of it is drawn at once.

import { HALF, toneTable } from "./colours.js";

export class Painting {
  constructor(site, head, temperature, scale) {
    const height = site.targets.length;
    const width = site.sources.length;
    const table = toneTable(scale, width);
    const tones = new Uint8Array(width * height);
    const buffer = new Float32Array(width);
    const bits = new Uint32Array(buffer.buffer);
    for (let y = 0; y < height; y++) {
      site.row(head, y, temperature, buffer);
      for (let x = 0, i = y * width; x < width; x++, i++) tones[i] = table[bits[x] >>> HALF];
    }
    this.levels = [{ tones, width, height }];
    for (let last = this.levels[0]; last.width > 64 || last.height > 64; last = this.levels.at(-1)) {
      this.levels.push(halved(last));
    }
  }

  // The coarsest level that has at least `pixels` on its longer side.
  thumbnail(pixels) {
    return this.levels.findLast((level) => Math.max(level.width, level.height) >= pixels) ?? this.levels[0];
  }
}

// The strongest of four: a single bright cell must not vanish among 4,096 × 4,096.
function halved({ tones, width, height }) {
  const across = Math.ceil(width / 2);
  const down = Math.ceil(height / 2);
  const half = new Uint8Array(across * down);
  for (let y = 0; y < height; y++) {
    for (let x = 0, to = (y >> 1) * across, from = y * width; x < width; x++, from++) {
      const place = to + (x >> 1);
      if (tones[from] > half[place]) half[place] = tones[from];
    }
  }
  return { tones: half, width: across, height: down };
}

export function canvasOf({ tones, width, height }, colours) {
  const canvas = document.createElement("canvas");
  canvas.width = width;
  canvas.height = height;
  const context = canvas.getContext("2d");
  const image = context.createImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer);
  for (let i = 0; i < tones.length; i++) pixels[i] = colours[tones[i]];
  context.putImageData(image, 0, 0);
  return canvas;
}

// The newest paintings: a slider that goes back and forth, a head that is looked at again.
const kept = new Map();
const KEPT_CELLS = 4e7;

export function paintingOf(site, head, temperature, scale) {
  const key = [site.name, head, temperature, scale].join("|");
  if (!kept.has(key)) {
    const cells = site.targets.length * site.sources.length;
    while (kept.size && cells * (kept.size + 1) > KEPT_CELLS) kept.delete(kept.keys().next().value);
    kept.set(key, new Painting(site, head, temperature, scale));
  }
  return kept.get(key);
}
