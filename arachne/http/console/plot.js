// A month's images by day as stacked bars: read anew, and answered from the cache.

import { el, svg } from "./dom.js";

const WIDTH = 1000;
const HEIGHT = 220;
const LEFT = 44;
const BOTTOM = 24;
const TOP = 10;
const DAY_MS = 86_400_000;

/** The plot with its legend. The table beside it tells the same in numbers. */
export function plotDays({ from, to, data }) {
  const found = new Map(data.map((one) => [one.key, one]));
  const days = [];
  for (let at = Date.parse(from); at < Date.parse(to); at += DAY_MS) days.push(new Date(at).toISOString().slice(0, 10));
  const top = roundUp(Math.max(1, ...data.map((one) => one.images)));
  const step = (WIDTH - LEFT) / days.length;
  const scale = (images) => ((HEIGHT - TOP - BOTTOM) * images) / top;
  const bars = days.map((day, place) => bar(found.get(day), day, LEFT + place * step, step, scale));
  const marks = days.map((day, place) => place % 7 === 0 && label(LEFT + (place + 0.5) * step, HEIGHT - 6, Number(day.slice(8))));
  const lines = [0, top / 2, top].map((value) => line(HEIGHT - BOTTOM - scale(value), value));
  return el(
    "figure",
    {},
    svg(
      "svg",
      { class: "plot", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": "Images by day; the table tells the same" },
      ...lines,
      ...bars,
      ...marks.filter(Boolean),
    ),
    el("figcaption", { class: "hint" }, key("read"), "read ", key("cached"), "from the cache"),
  );
}

function bar(usage, day, x, step, scale) {
  if (!usage) return svg("g");
  const read = scale(usage.images - usage.cached);
  const cached = scale(usage.cached);
  const base = HEIGHT - BOTTOM;
  const width = Math.max(2, step - 4);
  const part = (name, y, height) => svg("rect", { class: name, x: x + (step - width) / 2, y, width, height, rx: Math.min(2, height / 2) });
  return svg(
    "g",
    {},
    svg("title", {}, `${day}: ${usage.images} images, ${usage.cached} from the cache`),
    part("read", base - read, read),
    part("cached", base - read - cached, cached),
  );
}

function line(y, value) {
  return svg(
    "g",
    {},
    svg("line", { x1: LEFT, x2: WIDTH, y1: y, y2: y }),
    svg("text", { x: LEFT - 6, y: y + 4, "text-anchor": "end" }, value),
  );
}

function label(x, y, value) {
  return svg("text", { class: "day", x, y, "text-anchor": "middle" }, value);
}

function key(name) {
  return svg("svg", { class: "key", viewBox: "0 0 10 10", "aria-hidden": true }, svg("rect", { class: name, width: 10, height: 10, rx: 2 }));
}

/** The next even number of the form 2, 4, 10, 20, 40, 100 …, so that its half is whole. */
function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 6, 8, 10].map((factor) => factor * power).find((one) => one >= value && one % 2 === 0) ?? 2;
}
