// A picture with the attention over it: for each word of an answer, each patch, each head.

import { clamp, element, percent, short } from "./dom.js";
import { roll, sheet } from "./film.js";
import { gridAt } from "./grids.js";
import { firstColumn, firstRow, hasRollout, inWords, isRolled, lookedAt, lookers, mostOf, nameOf, patchesOf, shareOf, sourceWords, STRIPS, stripsOf, targetWords } from "./maps.js";
import { aspectOf, drawMap, onlyPatch, picturesReady } from "./overlay.js";
import { sites } from "./record.js";
import { change, scale, site, state } from "./state.js";

const SIDE = { one: 440, two: 380 }; // pixels of a picture, at the most, where there is one or a pair of them
const TALLEST = 0.62; // of the window
const BEAT = 900; // milliseconds of a word
const MARKED = 0.005; // of the attention: a word that gets less has no figure
const NAMES_OF_STRIPS = { words: "words", heads: "heads", layers: "layers", sites: "attentions" };

export function picture(panel, say) {
  let over = null; // { row } or { column } or both: what the mouse points at
  let clock = null;
  let waits = false;

  const press = (label, text, act) => element("button", { type: "button", "aria-label": label, title: label, onclick: act }, text);
  const play = press("Play", "▶", () => toggle());
  const slider = element("input", { type: "range", min: 0, "aria-label": "Word", oninput: () => go(Number(slider.value)) });
  const count = element("span", { class: "count" });
  const player = element("div", { class: "player" }, press("Back", "‹", () => go(here() - 1)), play, press("Forward", "›", () => go(here() + 1)), slider, count);
  const words = element("div", { class: "chips", role: "group", "aria-label": "Words" });
  const choosers = {
    map: chooser("map", { "": "attention", rollout: "rollout", product: "rollout, no identity" }),
    strip: chooser("beside", NAMES_OF_STRIPS),
    paint: chooser("overlay", { "": "light", heat: "heat" }),
    shape: chooser("shape", { "": "smooth", patches: "patches" }),
  };
  const form = element("form", { class: "choosers", "aria-label": "Maps" }, ...Object.values(choosers));
  form.addEventListener("submit", (event) => event.preventDefault());
  const stage = element("div", { class: "stage" });
  const film = element("div", { class: "film", role: "group", "aria-label": "Small maps" });
  panel.append(player, words, form, element("div", { class: "screen" }, stage, film));
  new ResizeObserver(() => panel.hidden || update()).observe(panel);
  picturesReady.then(() => panel.hidden || update());

  function chooser(label, names) {
    const name = label === "overlay" ? "paint" : label === "beside" ? "strip" : label;
    const select = element("select", { id: `choose-${name}`, onchange: () => change({ [name]: select.value || null }) },
      ...Object.entries(names).map(([value, text]) => element("option", { value }, text)));
    return element("label", {}, `${label} `, select);
  }

  // What is shown: a row and a column. In an attention of one sequence they are the same place.
  function places() {
    if (site().isOwn) {
      const place = over?.row ?? state.row ?? state.column ?? firstRow(site());
      return { row: place, column: place };
    }
    return { row: over?.row ?? state.row ?? firstRow(site()), column: over?.column ?? state.column ?? firstColumn(site()) };
  }

  const onTargets = (place) => (site().isOwn ? { row: place, column: place } : { row: place });
  const onSources = (place) => (site().isOwn ? { row: place, column: place } : { column: place });

  // The words that are played: those of the answer, or, where it is the picture that looks, those it looks at.
  const played = () => (site().columns.length ? targetWords(site()) : sourceWords(site()));
  const here = () => Math.max(0, played().indexOf(site().columns.length ? places().row : places().column));

  function go(step) {
    over = null;
    const place = played()[clamp(step, 0, played().length - 1)];
    change(site().columns.length ? onTargets(place) : onSources(place));
  }

  function toggle(on = !clock) {
    clearInterval(clock);
    clock = null;
    if (on && played().length > 1) {
      if (here() === played().length - 1) go(0);
      clock = setInterval(() => (here() < played().length - 1 && !panel.hidden ? go(here() + 1) : toggle(false)), BEAT);
    }
    play.textContent = clock ? "❚❚" : "▶";
    play.setAttribute("aria-label", clock ? "Pause" : "Play");
  }

  // Entered with an attention that has no picture, it takes one that has.
  function enter() {
    if (!site().hasPicture) change({ site: sites.findLastIndex((each) => each.hasPicture) });
  }

  function point(at) {
    if (JSON.stringify(at) === JSON.stringify(over)) return;
    over = at;
    if (!waits) requestAnimationFrame(() => { waits = false; draw(); });
    waits = true;
  }

  function update() {
    over = null;
    const has = site().hasPicture;
    for (const part of [form, stage, film]) part.hidden = !has;
    player.hidden = !has || played().length < 2;
    words.hidden = !has || site().isOwn || !targetWords(site()).length; // else they are below the pictures
    if (!has) return say("This attention has no picture: choose another one.");
    const strips = stripsOf(site());
    offer("map", null, hasRollout(site()));
    offer("strip", strip(), strips.length > 1, strips);
    offer("paint", state.paint, true);
    offer("shape", state.shape, true);
    slider.max = played().length - 1;
    return draw();
  }

  function offer(name, shown, isThere, values = null) {
    const select = choosers[name].querySelector("select");
    choosers[name].hidden = !isThere;
    for (const option of select.options) option.hidden = option.disabled = values !== null && !values.includes(option.value);
    select.value = shown ?? state[name] ?? "";
  }

  function strip() {
    const strips = stripsOf(site());
    return strips.includes(state.strip) ? state.strip : strips[0] ?? null;
  }

  function draw() {
    if (panel.hidden || !site().hasPicture) return;
    const { row, column } = places();
    const figures = figuresOf(row, column);
    tell(row, column, figures);
    slider.value = here();
    slider.setAttribute("aria-valuetext", `${here() + 1} of ${played().length}`);
    count.textContent = `${here() + 1} / ${played().length}`;
    line(words, site().targets, targetWords(site()), { chosen: row, weights: site().isOwn || column === null ? null : lookers(site(), state.head, column), at: onTargets });
    show(figures);
    const name = strip();
    roll(film, name ? STRIPS[name](site(), state.head, places()) : [], { name, look: look(), choose: (values) => { over = null; change(values); } });
  }

  // Where a row looks, and who looks at a column: each on its picture, and on the words beside it.
  function figuresOf(row, column) {
    const { targets, sources, rows, columns, isOwn } = site();
    const found = [];
    if (columns.length) {
      const weights = lookedAt(site(), state.head, row);
      const title = row === null ? "All patches together look at" : `${nameOf(targets, rows, row)} looks at`;
      found.push({ side: "looks", title, tokens: sources, grids: columns, weights, words: sourceWords(site()), at: onSources, chosen: isOwn ? row : column });
    }
    if (rows.length) {
      const weights = column === null ? null : lookers(site(), state.head, column);
      const title = column === null ? "Point at a patch to see who looks at it" : `${nameOf(sources, columns, column)} is looked at by`;
      found.push({ side: "seen", title, tokens: targets, grids: rows, weights, words: targetWords(site()), at: onTargets, chosen: isOwn ? column : row });
    }
    return found;
  }

  // The canvases stay: a patch that is pointed at must not lose the mouse.
  function show(figures) {
    const aspects = figures.flatMap(({ grids }) => grids.map(aspectOf)); // those of pictures are known once they are read
    const key = [state.site, ...figures.map(({ side }) => side), ...aspects, panel.clientWidth, innerHeight].join("|");
    if (stage.dataset.key !== key) {
      stage.dataset.key = key;
      stage.replaceChildren(...figures.map(figure));
    }
    [...stage.children].forEach((node, i) => fill(node, figures[i]));
  }

  function figure({ side, grids, at }, _, all) {
    const widest = Math.min(all.length > 1 || grids.length > 1 ? SIDE.two : SIDE.one, panel.clientWidth);
    const canvases = grids.map((grid, number) => {
      const width = Math.min(widest, innerHeight * TALLEST * aspectOf(grid));
      const canvas = element("canvas", { tabindex: 0, role: "application", "data-grid": number, "data-key": `${side}${number}`,
        width: Math.round(width * devicePixelRatio), height: Math.round((width / aspectOf(grid)) * devicePixelRatio),
        onpointermove: (event) => point(at(under(canvas, grid, event))),
        onpointerleave: () => point(null),
        onclick: (event) => choose(at(under(canvas, grid, event))) });
      canvas.style.width = `${width}px`;
      return canvas;
    });
    const node = element("figure", { "data-side": side }, element("figcaption", {}), element("div", { class: "pictures" }, ...canvases), element("p", { class: "share" }), element("div", { class: "chips" }));
    if (grids.length === 1) node.style.width = canvases[0].style.width;
    return node;
  }

  function under(canvas, grid, { clientX, clientY }) {
    const { left, top, width, height } = canvas.getBoundingClientRect();
    const cell = (share, cells) => clamp(Math.floor(share * cells), 0, cells - 1);
    return grid.placeAt(cell((clientY - top) / height, grid.height), cell((clientX - left) / width, grid.width));
  }

  function choose(at) {
    const isHeld = Object.entries(at).every(([name, place]) => state[name] === place);
    over = null;
    change(isHeld ? Object.fromEntries(Object.keys(at).map((name) => [name, null])) : at);
  }

  const look = () => ({ paint: state.paint, shape: state.shape, scale: scale() });

  function fill(node, { side, title, tokens, grids, weights, words: its, at, chosen }) {
    node.querySelector("figcaption").textContent = title;
    const only = weights && side === "looks" ? onlyPatch(grids, weights) : null;
    const most = weights && mostOf(grids, weights);
    node.querySelectorAll("canvas").forEach((canvas, i) => {
      drawMap(canvas, grids[i], weights && patchesOf(grids[i], weights), { ...look(), most, chosen, only });
      canvas.setAttribute("aria-label", `${title}${weights ? ` ${inWords(tokens, grids, weights)}` : ""}. The arrow keys move from patch to patch.`);
    });
    node.querySelector(".share").textContent = inShort(side, grids, weights, { only, most, isAll: !its.length });
    line(node.querySelector(".chips"), tokens, its, { chosen, weights, at });
  }

  function inShort(side, grids, weights, { only, most, isAll }) {
    if (only !== null) return "A hard choice: this patch, and no other";
    if (!weights) return "";
    if (!most) return side === "looks" ? "It looks at no patch" : "No patch looks at it";
    const all = side === "looks" && !isAll ? `; all patches: ${percent(shareOf(grids, weights))}` : "";
    return `The strongest patch: ${percent(most)}${all}`;
  }

  // Words one can choose, as dark as their weights. They are made once, so that a focused one stays focused.
  function line(box, tokens, indices, { chosen, weights, at }) {
    const key = [state.site, indices.join()].join("|");
    if (box.dataset.key !== key) {
      box.dataset.key = key;
      box.replaceChildren(...indices.map((place) => element("button", { type: "button", onclick: () => choose(at(place)) }, element("span", {}, short(tokens[place])), element("small", {}))));
    }
    indices.forEach((place, i) => {
      const button = box.children[i];
      const weight = weights?.[place] ?? 0;
      button.setAttribute("aria-pressed", String(place === chosen));
      button.style.backgroundColor = place === chosen || !weight ? "" : `color-mix(in srgb, var(--chosen-soft) ${Math.round(100 * Math.min(1, 1.2 * weight))}%, transparent)`;
      button.lastChild.textContent = weights && weight >= MARKED ? ` ${percent(weight)}` : "";
    });
  }

  function tell(row, column, figures) {
    const through = isRolled(site()) ? `Rollout through layers 0 to ${site().layer}: ` : "";
    const parts = figures.filter(({ weights }) => weights).map(({ title, tokens, grids, weights }) => `${title} ${inWords(tokens, grids, weights)}`);
    if (!site().isOwn && !site().rows.length && column !== null) {
      parts.push(`${nameOf(site().sources, site().columns, column)} is looked at by ${inWords(site().targets, site().rows, lookers(site(), state.head, column))}`);
    }
    say(`${through}${parts.join("; ")}.`);
  }

  // The arrows go from word to word, or from patch to patch where a patch is chosen or a picture has the focus.
  function key(event) {
    const [dx, dy] = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[event.key] ?? [0, 0];
    if (!site().hasPicture) return false;
    if (event.key === " ") toggle();
    else if (event.key === "Home") go(0);
    else if (event.key === "End") go(played().length - 1);
    else if (dx || dy) {
      if (!movePatch(dx, dy)) go(here() + (dx || dy));
    } else return false;
    return true;
  }

  function movePatch(dx, dy) {
    const canvas = stage.contains(document.activeElement) ? document.activeElement.closest("canvas") : null;
    const own = site().isOwn || canvas?.closest("figure").dataset.side === "seen" ? "row" : "column";
    const grids = own === "row" ? site().rows : site().columns;
    const place = places()[own];
    const grid = gridAt(grids, place) ?? (canvas || played().length < 2 ? grids[canvas?.dataset.grid ?? 0] : null);
    if (!grid) return false;
    const cell = grid.has(place) ? grid.cellOf(place) : { row: (grid.height - 1) >> 1, column: (grid.width - 1) >> 1 };
    const step = grid.has(place) ? 1 : 0; // the first key goes to the middle
    const next = grid.placeAt(clamp(cell.row + step * dy, 0, grid.height - 1), clamp(cell.column + step * dx, 0, grid.width - 1));
    over = null;
    change(own === "row" ? onTargets(next) : onSources(next));
    return true;
  }

  const drawing = () => sheet(figuresOf(places().row, places().column).map(({ title }) => title), stage, film);

  return { enter, update, key, leave: () => toggle(false), picture: drawing };
}
