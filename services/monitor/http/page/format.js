// @ts-check
// Times, durations and numbers in words. Times of the interface are UTC seconds or ISO 8601; people see their own clock.

const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const HOUR = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });
const FULL = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" });
const ZONE = new Intl.DateTimeFormat("en-GB", { timeZoneName: "shortOffset" });
const NUMBER = new Intl.NumberFormat("en-US", { maximumFractionDigits: 1 });
const NATURAL = new Intl.Collator("en", { numeric: true });
const DAY_S = 86_400;

/** UTC seconds of what the interface calls a time; null of none. @param {unknown} value @returns {number | null} */
export function seconds(value) {
  if (typeof value === "number") return value;
  if (typeof value !== "string") return null;
  const found = Date.parse(value) / 1000;
  return Number.isNaN(found) ? null : found;
}

/** @param {unknown} at */
export function clock(at) {
  const found = seconds(at);
  return found === null ? "" : CLOCK.format(found * 1000);
}

/** For an axis that covers `span` seconds. @param {number} at @param {number} span */
export function tick(at, span) {
  return (span > 2 * DAY_S ? DAY : HOUR).format(at * 1000);
}

/** @param {unknown} at */
export function whole(at) {
  const found = seconds(at);
  return found === null ? "" : FULL.format(found * 1000);
}

/** The time of a moment of today, else with its day. @param {number} at @param {number} now */
export function moment(at, now) {
  const day = (/** @type {number} */ of) => new Date(of * 1000).toDateString();
  return day(at) === day(now) ? clock(at) : whole(at);
}

/** Of people's own clock: UTC+1. */
export function zone() {
  const part = ZONE.formatToParts().find((one) => one.type === "timeZoneName");
  return part === undefined ? "" : part.value.replace(/^GMT/, "UTC").replace(/\+0$/, "");
}

/** 8 s, 4 min, 3 h 20 min, 2 d 4 h. @param {number | null | undefined} length */
export function duration(length) {
  if (length === null || length === undefined) return "";
  const left = Math.max(0, Math.round(length));
  if (left < 60) return `${left} s`;
  if (left < 3600)
    return left < 600 && left % 60 ? `${Math.floor(left / 60)} min ${left % 60} s` : `${Math.floor(left / 60)} min`;
  const [large, small, of, unit, part] =
    left < DAY_S
      ? [Math.floor(left / 3600), Math.floor((left % 3600) / 60), 3600, "h", "min"]
      : [Math.floor(left / DAY_S), Math.floor((left % DAY_S) / 3600), DAY_S, "d", "h"];
  return small && left < 10 * of ? `${large} ${unit} ${small} ${part}` : `${large} ${unit}`;
}

/** 1 host, 2 hosts. @param {number} n @param {string} noun @param {string} [many] */
export function count(n, noun, many) {
  return `${number(n)} ${n === 1 ? noun : (many ?? `${noun}s`)}`;
}

/** @param {number} n */
export function number(n) {
  return NUMBER.format(n);
}

/** @param {number | null | undefined} share */
export function percent(share) {
  return share === null || share === undefined ? "–" : `${Math.round(share * 100)} %`;
}

/** By name, numbers in names by their value: total, since names are unique. @param {string} a @param {string} b */
export function byName(a, b) {
  return NATURAL.compare(a, b) || (a < b ? -1 : a > b ? 1 : 0);
}

/** A sentence: a capital first, a full stop last. @param {string} text */
export function sentence(text) {
  if (!text) return "";
  return text[0].toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".");
}
