// Every head of every layer at once, as thumbnails.

import { palette } from "./colours.js";
import { element, FONT, ink, shape } from "./dom.js";
import { canvasOf, paintingOf } from "./painting.js";
import { kinds, sites } from "./record.js";
import { change, scale, state } from "./state.js";

const PIXELS = 96; // of a thumbnail, at least, if the matrix has them

export function heads(panel, say) {
  let drawn = "";
  let turn = 0;

  function update() {
    const key = [state.temperature, scale(), document.documentElement.dataset.theme].join("|");
    if (key !== drawn) {
      drawn = key;
      panel.replaceChildren(...kinds.map(section));
      panel.style.setProperty("--heads", Math.max(...sites.map((site) => columns(site).length)));
      paint(++turn);
    }
    for (const button of panel.querySelectorAll("button")) {
      const isShown = Number(button.dataset.site) === state.site && button.dataset.head === String(state.head);
      button.setAttribute("aria-current", isShown);
    }
    say("Choose a head to enlarge it.");
  }

  function section(kind) {
    const layers = sites.filter((site) => site.kind === kind);
    const rows = layers.map((site) => element("div", { class: "thumbnails" },
      element("span", { class: "layer" }, `layer ${site.layer}`),
      ...columns(site).map((head) => thumbnail(site, head))));
    return element("section", { "aria-label": kind }, element("h2", {}, kind), ...rows);
  }

  // The mean first, if there is more than one to take it of.
  const columns = (site) => [...(site.heads.length > 1 ? [null] : []), ...site.heads.keys()];

  function thumbnail(site, head) {
    return element("button", {
      type: "button", class: "thumbnail", "data-site": sites.indexOf(site), "data-head": String(head),
      "aria-label": `${site.kind}, layer ${site.layer}, ${site.headName(head)}`,
      onclick: () => change({ view: "matrix", site: sites.indexOf(site), head }),
    }, element("span", { class: "caption" }, head === null || site.isMean ? "mean" : `${site.heads[head]}`));
  }

  // One after the other, so that the page answers meanwhile.
  async function paint(mine) {
    const colours = palette();
    for (const button of panel.querySelectorAll(".thumbnail")) {
      const head = button.dataset.head === "null" ? null : Number(button.dataset.head);
      const painting = paintingOf(sites[button.dataset.site], head, state.temperature, scale());
      const canvas = canvasOf(painting.thumbnail(PIXELS), colours);
      canvas.setAttribute("aria-hidden", "true");
      button.prepend(canvas);
      if (canvas.width * canvas.height > PIXELS * PIXELS / 2) await new Promise((next) => setTimeout(next));
      if (mine !== turn) return;
    }
  }

  function key(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const all = [...panel.querySelectorAll("button")];
    const here = all.indexOf(document.activeElement);
    if (!step) return false;
    all[here < 0 ? 0 : Math.min(all.length - 1, Math.max(0, here + step))].focus();
    return true;
  }

  function picture() {
    const step = PIXELS + 14;
    const root = shape("svg", { "font-family": FONT, "font-size": 12, fill: ink("ink") });
    let y = 10;
    let width = 0;
    for (const group of panel.querySelectorAll("section")) {
      root.append(shape("text", { x: 12, y: y + 14, "font-size": 15 }, group.getAttribute("aria-label")));
      y += 30;
      for (const row of group.querySelectorAll(".thumbnails")) {
        root.append(shape("text", { x: 12, y: y + PIXELS / 2, fill: ink("quiet") }, row.querySelector(".layer").textContent));
        row.querySelectorAll(".thumbnail").forEach((button, i) => {
          const x = 76 + i * step;
          const canvas = button.querySelector("canvas");
          if (canvas) {
            root.append(shape("image", { x, y, width: PIXELS, height: PIXELS, preserveAspectRatio: "none",
              href: canvas.toDataURL(), "image-rendering": "pixelated" }));
          }
          root.append(shape("rect", { x, y, width: PIXELS, height: PIXELS, fill: "none", stroke: ink("line") }),
            shape("text", { x, y: y + PIXELS + 14, fill: ink("quiet") }, button.querySelector(".caption").textContent));
          width = Math.max(width, x + step);
        });
        y += PIXELS + 26;
      }
    }
    root.setAttribute("viewBox", `0 0 ${width} ${y}`);
    root.setAttribute("width", width);
    root.setAttribute("height", y);
    return root;
  }

  return { update, key, picture };
}
