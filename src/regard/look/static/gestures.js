// What fingers, a mouse and its wheel mean on a picture: move it, enlarge it, point at a place, choose one.

import { clamp } from "./dom.js";

const STILL = 5; // pixels that a click may move

export function gestures(canvas, { move, zoom, point, choose }) {
  const held = new Map(); // the last event of each finger that is down
  let travelled = 0;

  const enlarge = (factor, { clientX, clientY }) => {
    const { left, top } = canvas.getBoundingClientRect();
    zoom(factor, clientX - left, clientY - top);
  };

  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    held.set(event.pointerId, event);
    travelled = 0;
  });
  canvas.addEventListener("pointermove", (event) => {
    const last = held.get(event.pointerId);
    if (!last) return point(event);
    const [dx, dy] = [event.clientX - last.clientX, event.clientY - last.clientY];
    const other = [...held.values()].find((each) => each.pointerId !== event.pointerId);
    const distance = (finger) => Math.hypot(finger.clientX - other.clientX, finger.clientY - other.clientY) || 1;
    if (other) enlarge(distance(event) / distance(last), other);
    else move(dx, dy);
    travelled += Math.abs(dx) + Math.abs(dy);
    return held.set(event.pointerId, event);
  });
  for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, (event) => held.delete(event.pointerId));
  canvas.addEventListener("pointerleave", () => point(null));
  canvas.addEventListener("click", (event) => travelled < STILL && choose(event));
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    enlarge(Math.exp(-clamp(event.deltaY, -200, 200) / 300), event);
  }, { passive: false });
}
