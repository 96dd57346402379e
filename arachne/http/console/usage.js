// What the account used: a plot by day, the same as a table, and the sums.

import { get } from "./api.js";
import { choice, el, field, replace, table } from "./dom.js";
import { complain } from "./notices.js";
import { plotDays } from "./plot.js";
import { writeBytes, writeNumber, writeSeconds } from "./words.js";

/** The view. */
export async function showUsage(place, _, signal) {
  const months = lastMonths(12);
  const month = choice("month", months.map(([value, label]) => [value, label]));
  const group = choice("group", [["day", "day"], ["model", "model"]]);
  const shown = el("div");
  const show = async () => {
    const asked = { from: month.value, to: following(month.value), group: group.value };
    const report = await get("/api/usage", asked, signal);
    const isLast = asked.from === month.value && asked.group === group.value; // answers may overtake one another
    if (isLast) replace(shown, showReport(report));
  };
  for (const control of [month, group]) control.addEventListener("change", () => show().catch(complain));
  replace(
    place,
    el("div", { class: "row head" }, el("h1", {}, "Usage"), el("div", { class: "row" }, field("Month", month), field("By", group))),
    shown,
  );
  await show();
}

function showReport(report) {
  const { total, currency, group } = report;
  const figures = [
    ["Images", writeNumber(total.images)],
    ["From the cache", writeNumber(total.cached)],
    ["Degraded", writeNumber(total.degraded)],
    ["GPU", total.gpu_seconds ? writeSeconds(total.gpu_seconds) : "none"],
    ["CPU", total.cpu_seconds ? writeSeconds(total.cpu_seconds) : "none"],
    ["Bytes", writeBytes(total.bytes)],
    ["Due", `${writeAmount(total.amount_due)} ${currency}`],
  ];
  const rows = report.data.map((one) => [
    one.key,
    writeNumber(one.images),
    writeNumber(one.cached),
    writeNumber(one.degraded),
    one.gpu_seconds.toFixed(1),
    one.cpu_seconds.toFixed(1),
    `${writeAmount(one.amount_due)} ${currency}`,
  ]);
  const heads = [group === "day" ? "Day (UTC)" : "Model", "Images", "Cached", "Degraded", "GPU s", "CPU s", "Due"];
  return [
    el("dl", { class: "figures" }, figures.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)))),
    group === "day" && el("div", { class: "card" }, plotDays(report)),
    rows.length ? table("Usage", heads, rows, { class: "numbers" }) : el("p", {}, "Nothing was used in this month."),
  ];
}

/** A decimal string without the zeros nobody needs; it is never made a float. */
function writeAmount(text) {
  const [whole, part = ""] = text.split(".");
  return `${whole}.${part.replace(/0+$/, "").padEnd(2, "0")}`;
}

/** The first days of this month and those before it, with their names. */
function lastMonths(amount) {
  const now = new Date();
  const names = new Intl.DateTimeFormat("en", { month: "long", year: "numeric", timeZone: "UTC" });
  return Array.from({ length: amount }, (_, back) => {
    const first = new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() - back, 1));
    return [first.toISOString().slice(0, 10), names.format(first)];
  });
}

function following(day) {
  const first = new Date(day);
  return new Date(Date.UTC(first.getUTCFullYear(), first.getUTCMonth() + 1, 1)).toISOString().slice(0, 10);
}
