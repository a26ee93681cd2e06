// Elements with their attributes and children. Text is always text: nothing here reads markup.

const VECTOR = "http://www.w3.org/2000/svg";

export function element(tag, attributes = {}, ...children) {
  return furnish(document.createElement(tag), attributes, children);
}

export function shape(tag, attributes = {}, ...children) {
  return furnish(document.createElementNS(VECTOR, tag), attributes, children);
}

function furnish(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children);
  return node;
}

export const byId = (id) => document.getElementById(id);

export const FONT = 'system-ui, -apple-system, "Segoe UI", "Noto Sans", "DejaVu Sans", sans-serif';
const ruler = document.createElement("canvas").getContext("2d");

export function widthOf(text, size) {
  ruler.font = `${size}px ${FONT}`;
  return ruler.measureText(text).width;
}

// A colour of the style sheet, as drawn pictures need it.
export const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

// A token as one reads it: the space that begins a word is not shown.
export const word = (token) => token.trim() || token;
// In a sentence of ours: whatever direction it is written in, it turns nothing around it.
export const quoted = (token) => `“\u2068${word(token)}\u2069”`;
const CUT = 22;
export const short = (token) => (word(token).length > CUT ? `${word(token).slice(0, CUT - 1)}…` : word(token));

export function percent(weight) {
  if (weight >= 0.0995 || weight === 0) return `${Math.round(weight * 100)} %`;
  return weight < 0.0001 ? "<0.01 %" : `${(weight * 100).toFixed(weight < 0.001 ? 2 : 1)} %`;
}

export const clamp = (number, low, high) => Math.min(high, Math.max(low, number));
