// The page: its views, its controls, its keys.

import { alignment } from "./alignment.js";
import { byId, element } from "./dom.js";
import { explain } from "./explain.js";
import { heads } from "./heads.js";
import { matrix } from "./matrix.js";
import { measures } from "./measures.js";
import { picture } from "./picture.js";
import { facts, kinds, sites } from "./record.js";
import { savePixels, saveVector } from "./save.js";
import { change, onChange, readAddress, scale, site, state } from "./state.js";
import { steps } from "./steps.js";
import { vectors } from "./vectors.js";

const VIEWS = { ...(sites.some((each) => each.hasPicture) ? { picture } : {}), alignment, heads, matrix, steps, measures, ...(vectors.size ? { explain } : {}) };
const NAMES = { explain: "six steps" };

function say(text) {
  if (byId("status").textContent !== text) byId("status").textContent = text;
}

const shown = Object.fromEntries(Object.entries(VIEWS).map(([name, make], i) => {
  const tab = element("button", { type: "button", role: "tab", id: `tab-${name}`, "aria-controls": `panel-${name}`, onclick: () => change({ view: name }) },
    NAMES[name] ?? name, element("kbd", { "aria-hidden": "true" }, String(i + 1)));
  const panel = element("div", { role: "tabpanel", id: `panel-${name}`, "aria-labelledby": `tab-${name}`, hidden: true });
  byId("tabs").append(tab);
  byId("panels").append(panel);
  return [name, { tab, panel, ...make(panel, say) }];
}));

function texts() {
  const { source, output, about, leftOut } = facts;
  const parts = [element("span", { class: "source" }, source || "regard")];
  if (output) parts.push(element("span", { class: "arrow", role: "img", "aria-label": "gives" }, " → "), element("span", { class: "output" }, output.text));
  byId("sentences").append(...parts);
  byId("about").append(element("span", {}, about || "regard"));
  if (leftOut.length) byId("about").prepend(element("p", { class: "left-out" }, `Left out, for the size of the page: ${leftOut.join("; ")}.`));
}

function options(select, names, chosen) {
  const isNew = select.options.length !== names.length || names.some((name, i) => select.options[i].textContent !== name);
  if (isNew) select.replaceChildren(...names.map((name, i) => element("option", { value: i }, name)));
  select.selectedIndex = chosen;
  select.disabled = names.length < 2;
}

const layers = () => sites.filter((each) => each.kind === site().kind);

function controls() {
  options(byId("kind"), kinds, kinds.indexOf(site().kind));
  options(byId("layer"), layers().map((each) => String(each.layer)), layers().indexOf(site()));
  const several = site().heads.length > 1;
  options(byId("head"), [...(several ? ["mean"] : []), ...site().heads.map((head) => (head < 0 ? "mean" : String(head)))], several ? (state.head ?? -1) + 1 : 0);
  byId("temperature").value = Math.log2(state.temperature);
  byId("temperature").setAttribute("aria-valuetext", state.temperature.toFixed(2));
  byId("degrees").textContent = state.temperature.toFixed(2);
  byId("scale").value = scale();
}

let current = null;

function render() {
  if (!(state.view in shown)) [state.view] = Object.keys(VIEWS);
  if (current !== state.view) {
    shown[current]?.leave?.();
    current = state.view;
    shown[current].enter?.();
    // A narrow screen shows some of the tabs. (`scrollIntoView` would also move where the tab key goes on from.)
    byId("tabs").scrollLeft = shown[current].tab.offsetLeft - byId("tabs").offsetLeft - byId("tabs").clientWidth / 2;
  }
  for (const [name, { tab, panel }] of Object.entries(shown)) {
    const isCurrent = name === state.view;
    tab.setAttribute("aria-selected", isCurrent);
    tab.tabIndex = isCurrent ? 0 : -1;
    panel.hidden = !isCurrent;
  }
  document.body.dataset.view = state.view;
  controls();
  shown[state.view].update();
}

let pending = false;
function schedule() {
  if (!pending) requestAnimationFrame(() => { pending = false; render(); });
  pending = true;
}

function connect() {
  const siteOf = (kind, layer) => sites.indexOf(sites.filter((each) => each.kind === kind).toSorted((a, b) => Math.abs(a.layer - layer) - Math.abs(b.layer - layer))[0]);
  byId("controls").addEventListener("submit", (event) => event.preventDefault());
  byId("kind").addEventListener("change", (event) => change({ site: siteOf(kinds[event.target.selectedIndex], site().layer) }));
  byId("layer").addEventListener("change", (event) => change({ site: sites.indexOf(layers()[event.target.selectedIndex]) }));
  byId("head").addEventListener("change", (event) => change({ head: event.target.selectedIndex ? event.target.selectedIndex - 1 : null }));
  byId("temperature").addEventListener("input", (event) => change({ temperature: Number((2 ** event.target.value).toFixed(3)) }));
  byId("temperature").addEventListener("dblclick", () => change({ temperature: 1 }));
  byId("scale").addEventListener("change", (event) => change({ scale: event.target.value }));
  byId("theme").addEventListener("click", turnLights);
  byId("ask").addEventListener("click", () => byId("help").showModal());
  const file = () => ["regard", state.view, site().name, site().headName(state.head)].join("-").replaceAll(/[^\w.]+/g, "-");
  byId("svg").addEventListener("click", () => saveVector(shown[state.view].picture(), file()));
  byId("png").addEventListener("click", () => savePixels(shown[state.view].picture(), file()));
  byId("tabs").addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.stopPropagation();
    const names = Object.keys(VIEWS);
    change({ view: names[(names.indexOf(state.view) + step + names.length) % names.length] });
    shown[state.view].tab.focus();
  });
}

// Dark or light: as the machine has it, until one chooses.
const dark = matchMedia("(prefers-color-scheme: dark)");
let chosenTheme = null;
try {
  chosenTheme = localStorage.getItem("regard-theme");
} catch { /* a page without storage remembers nothing */ }

function light() {
  document.documentElement.dataset.theme = chosenTheme ?? (dark.matches ? "dark" : "light");
}

function turnLights() {
  chosenTheme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  try {
    localStorage.setItem("regard-theme", chosenTheme);
  } catch { /* as above */ }
  light();
  schedule();
}

function nextHead(step) {
  const last = site().heads.length - 1;
  const next = (state.head ?? -1) + step;
  change({ head: next < 0 ? null : Math.min(next, last) });
}

function nextLayer(step) {
  const next = layers()[layers().indexOf(site()) + step];
  if (next) change({ site: sites.indexOf(next) });
}

const KEYS = {
  "[": () => nextHead(-1), "]": () => nextHead(1), ",": () => nextLayer(-1), ".": () => nextLayer(1),
  t: turnLights, "?": () => byId("help").showModal(),
  Escape: () => change(state.row !== null || state.column !== null ? { row: null, column: null } : state.view === "matrix" ? { view: "heads" } : {}),
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || byId("help").open) return;
  const { target } = event;
  if (target.matches("select, input")) return;
  if (target.matches("button, a") && (event.key === " " || event.key === "Enter")) return;
  const view = Object.keys(VIEWS)[Number(event.key) - 1];
  if (view) change({ view });
  else if (!shown[state.view].key(event)) {
    if (!KEYS[event.key]) return;
    KEYS[event.key]();
  }
  event.preventDefault();
});

light();
dark.addEventListener("change", () => { light(); schedule(); });
texts();
connect();
onChange(schedule);
addEventListener("popstate", () => { readAddress(); schedule(); });
addEventListener("hashchange", () => { readAddress(); schedule(); });
readAddress();
render();
