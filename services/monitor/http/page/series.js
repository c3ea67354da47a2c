// @ts-check
// Numbers of the chart: what the timeline's answer means, live points appended, scales and nice steps. No document here.
//
// Rules
//   1. A series is bounded: a live point nearer to the last one than the answer's own step replaces it, and points older than
//      the range are dropped.
//   2. Bands are stacked in this order: departments as they have their colours, others by name, then (draining), (lost),
//      (absent), and (free) on top. What a point does not name is 0; a point without any number is no point.
//   3. A point is of the step that ends at its `at`. What is so now is a last point (`upTo`), which is never kept.
//   4. A load that was not reported is null: a line has a gap there, not a zero.

import { byName, seconds } from "./format.js";

const LAST = ["(draining)", "(lost)", "(absent)", "(free)"];

/** @typedef {Record<string, (number | null)[]>} Measures of a department, by name */
/** @typedef {{at: number[], step_s: number, owners: Map<string, number[]>, load: Map<string, Measures>}} Series */

/** @param {any} answer of GET /v1/timeline @returns {Series} */
export function seriesOf(answer) {
  const at = (answer.at ?? []).map((/** @type {string} */ one) => seconds(one) ?? 0);
  const known = at.map((_, i) => Object.values(answer.owners ?? {}).some((counts) => typeof counts[i] === "number"));
  const kept = (/** @type {any[]} */ values) => at.map((_, i) => values?.[i]).filter((_, i) => known[i]);
  const owners = new Map(
    Object.entries(answer.owners ?? {}).map(([name, counts]) => [name, kept(counts).map((n) => n ?? 0)]),
  );
  const load = new Map();
  for (const [name, of] of Object.entries(answer.load ?? {})) {
    load.set(
      name,
      Object.fromEntries(Object.entries(of).map(([metric, values]) => [metric, kept(values).map((n) => n ?? null)])),
    );
  }
  return { at: at.filter((_, i) => known[i]), step_s: answer.step_s ?? 1, owners, load };
}

/** Rule 1. @param {Series} series @param {any} point @param {number} range_s */
export function append(series, point, range_s) {
  const { at } = series;
  const n = at.length;
  const end = seconds(point.at) ?? 0;
  if (n && end <= at[n - 1]) return;
  const replaced = n >= 2 && end - at[n - 2] < series.step_s;
  const i = replaced ? n - 1 : n;
  at[i] = end;
  for (const name of new Set([...series.owners.keys(), ...Object.keys(point.owners ?? {})])) {
    if (!series.owners.has(name)) series.owners.set(name, new Array(n).fill(0));
    /** @type {number[]} */ (series.owners.get(name))[i] = point.owners?.[name] ?? 0;
  }
  for (const name of new Set([...series.load.keys(), ...Object.keys(point.load ?? {})])) {
    if (!series.load.has(name)) series.load.set(name, {});
    const of = series.load.get(name) ?? {};
    for (const metric of new Set([...Object.keys(of), ...Object.keys(point.load?.[name] ?? {})])) {
      of[metric] ??= new Array(n).fill(null);
      of[metric][i] = point.load?.[name]?.[metric] ?? null;
    }
  }
  trim(series, end - range_s);
}

function trim(series, from) {
  let old = 0;
  while (old + 1 < series.at.length && series.at[old + 1] < from) old += 1;
  if (old === 0) return;
  series.at.splice(0, old);
  for (const counts of series.owners.values()) counts.splice(0, old);
  for (const of of series.load.values()) for (const values of Object.values(of)) values.splice(0, old);
}

/**
 * Rule 3: the same with a point of now, of what hosts and departments are.
 * @param {Series} series
 * @param {number} at
 * @param {Map<string, any>} hosts
 * @param {Map<string, any>} departments
 * @returns {Series}
 */
export function upTo(series, at, hosts, departments) {
  const n = series.at.length;
  if (n === 0 || at <= series.at[n - 1] || hosts.size === 0) return series;
  const counts = new Map();
  for (const row of hosts.values()) {
    const name = row.state === "held" ? row.department : `(${row.state})`;
    if (name !== "(absent)") counts.set(name, (counts.get(name) ?? 0) + 1);
  }
  const owners = new Map([...series.owners].map(([name, all]) => [name, [...all, counts.get(name) ?? 0]]));
  for (const [name, count] of counts) if (!owners.has(name)) owners.set(name, [...new Array(n).fill(0), count]);
  const load = new Map();
  for (const [name, of] of series.load) {
    const row = departments.get(name) ?? {};
    const told = { ...row, wanted: row.instances_wanted, serving: row.instances_serving };
    const silent = row.signal_missing_since !== null && row.signal_missing_since !== undefined;
    const last = (/** @type {string} */ metric) => (silent && metric in row ? null : (told[metric] ?? null));
    load.set(name, Object.fromEntries(Object.entries(of).map(([metric, all]) => [metric, [...all, last(metric)]])));
  }
  return { at: [...series.at, at], step_s: series.step_s, owners, load };
}

/** Rule 2. @param {Series} series @param {Map<string, number>} slots */
export function bands(series, slots) {
  const names = [...series.owners.keys()];
  const rank = (name) => (slots.has(name) ? slots.get(name) : LAST.includes(name) ? 2000 + LAST.indexOf(name) : 1000);
  return names.sort((a, b) => rank(a) - rank(b) || byName(a, b));
}

/**
 * Round numbers from 0 to at least `most`, about `n` of them.
 * @param {number} most
 * @param {number} n
 * @param {boolean} [whole]
 */
export function ticks(most, n, whole = false) {
  const raw = Math.max(most, whole ? 1 : 1e-9) / n;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step =
    [1, 2, 2.5, 5, 10].map((k) => k * power).find((k) => k >= raw && (!whole || Number.isInteger(k))) ??
    Math.max(1, 10 * power);
  const found = [];
  for (let i = 0; (i - 1) * step < most; i += 1) found.push(i * step);
  return found.length < 2 ? [0, step] : found;
}

const STEPS_S = [5, 10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800];

/**
 * Times on the axis, on round minutes or hours of the people's clock.
 * @param {number} from
 * @param {number} to
 * @param {number} n about this many
 */
export function times(from, to, n) {
  const step = STEPS_S.find((one) => (to - from) / one <= n) ?? 345_600;
  const zone = new Date(to * 1000).getTimezoneOffset() * 60;
  const found = [];
  for (let at = Math.ceil((from - zone) / step) * step + zone; at <= to; at += step) found.push(at);
  return found;
}

/** The index of the last point that is not after `at`; -1: none. @param {number[]} all @param {number} at */
export function before(all, at) {
  let low = 0;
  let high = all.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (all[middle] <= at) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}
