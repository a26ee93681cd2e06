// What is shown: a few values, kept in the address, so that an address is a view.

import { favourite, sites } from "./record.js";

const LONG = 100; // tokens from which a linear scale shows next to nothing

export const state = {
  view: sites.some((each) => each.hasPicture) ? "picture" : "alignment",
  site: favourite, head: null, row: null, column: null, temperature: 1, scale: null,
  map: null, strip: null, paint: null, shape: null, // of the view of pictures
};
// What has a name in the address; none of them is the first choice.
const CHOICES = {
  scale: ["linear", "log"], map: ["rollout", "product"], strip: ["words", "heads", "layers", "sites"],
  paint: ["heat"], shape: ["patches"],
};
const first = { ...state };
const listeners = [];

export const site = () => sites[state.site];
// A map over a picture is as bright as its strongest patch: there a linear scale shows enough.
export const scale = () => state.scale ?? (site().sources.length > LONG && state.view !== "picture" ? "log" : "linear");
export const onChange = (listener) => listeners.push(listener);

export function change(values) {
  const moved = "view" in values && values.view !== state.view;
  Object.assign(state, values);
  mend();
  history[moved ? "pushState" : "replaceState"](null, "", address());
  listeners.forEach((listener) => listener());
}

export function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  const number = (name) => (given.has(name) && Number.isFinite(Number(given.get(name))) ? Number(given.get(name)) : null);
  const place = sites.findIndex((each) => each.name === given.get("site"));
  Object.assign(state, first, {
    view: given.get("view") ?? first.view,
    site: place < 0 ? first.site : place,
    row: number("row"), column: number("column"),
    temperature: Math.min(8, Math.max(1 / 8, number("temperature") || 1)),
    ...Object.fromEntries(Object.entries(CHOICES).map(([name, all]) => [name, all.find((each) => each === given.get(name)) ?? null])),
  });
  const head = site().heads.indexOf(number("head"));
  state.head = head < 0 ? null : head;
  mend();
}

// A row or a head that the newly chosen site does not have is none.
function mend() {
  const within = (value, length) => (Number.isInteger(value) && value >= 0 && value < length ? value : null);
  state.row = within(state.row, site().targets.length);
  state.column = within(state.column, site().sources.length);
  state.head = site().heads.length === 1 ? 0 : within(state.head, site().heads.length);
}

function address() {
  const shown = new URLSearchParams({ view: state.view, site: site().name });
  if (state.head !== null && !site().isMean) shown.set("head", site().heads[state.head]);
  for (const name of ["row", "column", ...Object.keys(CHOICES)]) if (state[name] !== null) shown.set(name, state[name]);
  if (state.temperature !== 1) shown.set("temperature", state.temperature);
  return `#${shown}`;
}
