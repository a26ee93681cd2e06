// A map over a picture, on a canvas. Where the weights are, the picture keeps its colours; elsewhere it fades.

import { RAMPS, smallest, theme } from "./colours.js";
import { ink } from "./dom.js";
import { facts } from "./record.js";

const FINE = 224; // pixels of a smooth map on its longer side: finer than an eye sees on it
const SHADOW = [13, 16, 23]; // the dark around the light, on any paper …
const FADED = 0.8; // … and how much of the picture it hides where no weight is
const COVERED = 0.72; // how much colours hide of the picture, which is grey below them
const COARSE = 128; // a picture with fewer pixels is shown with its pixels
const HARD = 0.999; // of a row's weight on one place: a choice, no distribution

const images = new Map(facts.pictures.map((address) => {
  const image = new Image();
  image.src = address;
  return [address, image];
}));

// When all pictures can be drawn. One that cannot be read is as none.
export const picturesReady = Promise.all([...images.values()].map((image) => image.decode().catch(() => {})));

function imageOf(grid) {
  const image = images.get(grid.picture);
  return image?.complete && image.naturalWidth ? image : null;
}

export function aspectOf(grid) {
  const image = imageOf(grid);
  return image ? image.naturalWidth / image.naturalHeight : grid.width / grid.height;
}

// The patch that got all of the weight; null if none did.
export function onlyPatch(grids, weights) {
  const place = weights.findIndex((weight) => weight >= HARD);
  return grids.some((grid) => grid.has(place)) ? place : null;
}

// From a weight to a number between 0 and 1, the most of this map.
export function strength(scale, most, count) {
  if (!(most > 0)) return () => 0;
  if (scale === "linear") return (weight) => Math.min(1, Math.max(0, weight / most));
  const lowest = Math.log(Math.min(smallest(count), most / 2) / most);
  return (weight) => (weight > 0 ? Math.min(1, Math.max(0, 1 - Math.log(weight / most) / lowest)) : 0);
}

// For each pixel the four cells around it and their shares: a cubic B-spline, which is smooth and never negative.
function taps(cells, pixels) {
  return Array.from({ length: pixels }, (_, pixel) => {
    const place = ((pixel + 0.5) * cells) / pixels - 0.5;
    const first = Math.floor(place);
    const f = place - first;
    const shares = [(1 - f) ** 3, 4 - 6 * f ** 2 + 3 * f ** 3, 1 + 3 * f + 3 * f ** 2 - 3 * f ** 3, f ** 3];
    return shares.map((share, i) => [Math.min(cells - 1, Math.max(0, first - 1 + i)), share / 6]);
  });
}

export function smoothed(weights, { height, width }, down, across) {
  const wide = new Float32Array(height * across);
  const fine = new Float32Array(down * across);
  const [columns, rows] = [taps(width, across), taps(height, down)];
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < across; x++) for (const [cell, share] of columns[x]) wide[y * across + x] += share * weights[y * width + cell];
  }
  for (let y = 0; y < down; y++) {
    for (const [cell, share] of rows[y]) for (let x = 0; x < across; x++) fine[y * across + x] += share * wide[cell * across + x];
  }
  return fine;
}

// The colour and the opacity of each strength, as they lie over the picture.
function veil(paint, hasImage) {
  if (!hasImage) return (tone) => [...RAMPS[theme()][Math.round(tone * 255)], 255];
  if (paint === "heat") return (tone) => [...RAMPS.dark[Math.round(tone * 255)], 255 * COVERED]; // more is brighter, as in light
  return (tone) => [...SHADOW, 255 * FADED * (1 - tone)];
}

function veilOf(weights, grid, most, { paint, isSmooth, scale, pixels: longest }) {
  const size = isSmooth ? Math.max(1, Math.min(FINE, longest) / Math.max(grid.height, grid.width)) : 1;
  const [down, across] = [Math.round(grid.height * size), Math.round(grid.width * size)];
  const values = isSmooth ? smoothed(weights, grid, down, across) : weights;
  // Smoothing lowers a peak: the brightest pixel is as bright as the strongest patch.
  const highest = values.reduce((high, value) => Math.max(high, value), 0);
  const strongest = weights.reduce((high, value) => Math.max(high, value), 0);
  const tone = strength(scale, (most * highest) / (strongest || 1), weights.length);
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [across, down];
  const context = canvas.getContext("2d");
  const pixels = context.createImageData(across, down);
  const colour = veil(paint, Boolean(imageOf(grid)));
  for (let i = 0; i < values.length; i++) pixels.data.set(colour(tone(values[i])), 4 * i);
  context.putImageData(pixels, 0, 0);
  return canvas;
}

function drawImage(context, grid, width, height, isGrey) {
  const image = imageOf(grid);
  if (!image) return;
  context.imageSmoothingEnabled = Math.max(image.naturalWidth, image.naturalHeight) >= COARSE;
  context.imageSmoothingQuality = "high";
  context.drawImage(image, 0, 0, width, height);
  if (!isGrey) return;
  context.globalCompositeOperation = "saturation";
  context.fillStyle = "#808080";
  context.fillRect(0, 0, width, height);
  context.globalCompositeOperation = "source-over";
}

function outline(context, grid, place, colour, thick, [width, height]) {
  const { row, column } = grid.cellOf(place);
  const [across, down] = [width / grid.width, height / grid.height];
  const edge = [column * across, row * down, across, down];
  context.strokeStyle = ink("paper");
  context.lineWidth = thick * 2;
  context.strokeRect(...edge);
  context.strokeStyle = colour;
  context.lineWidth = thick;
  context.strokeRect(...edge);
}

// `weights` are those of the patches, or null: the picture as it is. `most` is the weight that is shown full.
// A hard choice is drawn as the cell it is, with a line around it.
export function drawMap(canvas, grid, weights, { most, paint, shape, scale, chosen = null, only = null }) {
  const context = canvas.getContext("2d");
  const size = [canvas.width, canvas.height];
  context.clearRect(0, 0, ...size);
  drawImage(context, grid, ...size, paint === "heat" && weights);
  if (weights) {
    const isSmooth = shape !== "patches" && only === null;
    context.imageSmoothingEnabled = isSmooth;
    context.drawImage(veilOf(weights, grid, most, { paint, isSmooth, scale, pixels: Math.max(...size) }), 0, 0, ...size);
  }
  const thick = Math.max(1, canvas.width / 220);
  if (grid.has(only)) outline(context, grid, only, ink("chosen"), thick, size);
  if (grid.has(chosen)) outline(context, grid, chosen, ink("accent"), thick, size);
}
