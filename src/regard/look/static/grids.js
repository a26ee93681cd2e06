// Pictures on an axis: which of its places are patches, and of which picture.

class Grid {
  constructor({ grid: [height, width], before, picture }, start, pictures) {
    Object.assign(this, { height, width, start: start + before.length, picture: picture === null ? null : pictures[picture] });
  }

  get end() {
    return this.start + this.height * this.width;
  }

  has(place) {
    return place !== null && place >= this.start && place < this.end;
  }

  placeAt(row, column) {
    return this.start + row * this.width + column;
  }

  cellOf(place) {
    return { row: Math.floor((place - this.start) / this.width), column: (place - this.start) % this.width };
  }
}

const lengthOf = (part) => (part.grid ? part.before.length + part.grid[0] * part.grid[1] : (part.seconds ?? part).length);

// `axis` is as in `axis_to_json` of axes.py; an axis of words is null.
export function gridsOf(axis, pictures) {
  const found = [];
  let start = 0;
  for (const part of axis === null ? [] : axis.parts ?? [axis]) {
    if (part.grid) found.push(new Grid(part, start, pictures));
    start += lengthOf(part);
  }
  return found;
}

export const gridAt = (grids, place) => grids.find((grid) => grid.has(place)) ?? null;

// The places of an axis that are no patches.
export const wordsOf = (tokens, grids) => [...tokens.keys()].filter((place) => !gridAt(grids, place));
