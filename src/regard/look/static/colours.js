// From a weight to a colour. Lightness alone tells weights apart: every eye sees the same order.

const STOPS = {
  light: ["#fbfaf7", "#cfdfee", "#8ab6d8", "#3f80b8", "#1c4e8c", "#0c1f4f"],
  dark: ["#16191f", "#1d3350", "#2a5d8c", "#4b93bf", "#97cade", "#f6f9e6"],
};
const SIGNED = { light: ["#b04a00", "#f4f2ec", "#1c4e8c"], dark: ["#ffa860", "#262b34", "#7fbcf5"] };
const TONES = 256;

export const theme = () => document.documentElement.dataset.theme;

const rgb = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));

function ramp(stops) {
  const colours = stops.map(rgb);
  return Array.from({ length: TONES }, (_, tone) => {
    const place = (tone / (TONES - 1)) * (colours.length - 1);
    const i = Math.min(Math.floor(place), colours.length - 2);
    return colours[i].map((from, c) => Math.round(from + (colours[i + 1][c] - from) * (place - i)));
  });
}

const SIGNED_RAMPS = { light: ramp(SIGNED.light), dark: ramp(SIGNED.dark) };
export const RAMPS = { light: ramp(STOPS.light), dark: ramp(STOPS.dark) };

export const colour = (tone) => `rgb(${RAMPS[theme()][tone].join(" ")})`;

// Of a number between −1 and 1: orange, through paper, to blue.
export const signed = (number) => `rgb(${SIGNED_RAMPS[theme()][Math.round((Math.max(-1, Math.min(1, number)) + 1) * 127.5)].join(" ")})`;

// As a canvas keeps them: red is the lowest byte.
export const palette = () => Uint32Array.from(RAMPS[theme()], ([r, g, b]) => 0xff000000 | (b << 16) | (g << 8) | r);

// Black or white, whichever is read more easily on this tone.
export function onTone(tone) {
  const [r, g, b] = RAMPS[theme()][tone].map((c) => (c / 255) ** 2.2);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.19 ? "#10131a" : "#ffffff";
}

// The logarithmic scale ends well below what each of `count` sources gets when all get the same.
export const smallest = (count) => 1 / (16 * count);

export function toner(scale, count) {
  if (scale === "linear") return (weight) => Math.min(TONES - 1, Math.round(weight * (TONES - 1)));
  const lowest = Math.log(smallest(count));
  return (weight) => (weight > 0 ? Math.max(0, Math.round((TONES - 1) * Math.min(1, 1 - Math.log(weight) / lowest))) : 0);
}

// The same for millions of weights: by the upper half of a float's bits, which know it to half a per cent.
export const HALF = 15;

export function toneTable(scale, count) {
  const bits = Uint32Array.from({ length: 1 << (31 - HALF) }, (_, i) => i << HALF);
  return Uint8Array.from(new Float32Array(bits.buffer), toner(scale, count));
}
