// How moments, sizes and numbers are written for people.

const moment = new Intl.DateTimeFormat("en", { dateStyle: "medium", timeStyle: "medium" });
const relative = new Intl.RelativeTimeFormat("en", { numeric: "auto" });
const number = new Intl.NumberFormat("en");
const STEPS = [
  ["day", 86_400],
  ["hour", 3_600],
  ["minute", 60],
  ["second", 1],
];

/** A moment in the reader's own time zone. */
export function writeMoment(text) {
  return text ? moment.format(new Date(text)) : "";
}

/** How long ago or hence a moment is. */
export function writeAge(text) {
  const seconds = (new Date(text) - Date.now()) / 1000;
  const [unit, size] = STEPS.find(([, size]) => Math.abs(seconds) >= size) ?? ["second", 1];
  return relative.format(Math.round(seconds / size), unit);
}

/** A whole number with its thousands marked. */
export function writeNumber(value) {
  return number.format(value);
}

/** Bytes in the unit that fits. */
export function writeBytes(bytes) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  const step = bytes < 1000 ? 0 : Math.min(units.length - 1, Math.floor(Math.log10(bytes) / 3));
  return `${(bytes / 1000 ** step).toFixed(step ? 1 : 0)} ${units[step]}`;
}

/** Seconds in words. */
export function writeSeconds(seconds) {
  if (seconds < 60) return `${Math.max(1, Math.round(seconds))} s`;
  return seconds < 3600 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

/** A share as a percentage; what is little is not nothing. */
export function writeShare(share) {
  if (share > 0 && share < 0.005) return "< 1 %";
  return `${Math.round(share * 100)} %`;
}

/** One or many of something. */
export function count(amount, one, many = `${one}s`) {
  return `${writeNumber(amount)} ${amount === 1 ? one : many}`;
}
