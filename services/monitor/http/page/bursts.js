// @ts-check
// Decisions that say the same of many, as one line. No document here.
//
// Rules
//   1. Alike are decisions of one kind and department whose sentences differ in numbers, and names with numbers, alone ("job #
//      has completed after #"), and that fall into the same SPAN_S of the clock: a line that is there stays, and grows.
//   2. From LEAST on they are one line, where the oldest was: lines do not change places while more come. It says what the
//      newest says: of "hpc wants 9 hosts" the last one counts.

const SPAN_S = 5;
const LEAST = 3;
const NUMBERED = /[\w.-]*\d[\w.-]*/g;
const LISTED = /#(, #)+( and #)?/g;
const PLURAL = /\b(host|job|instance|core)s\b/g;

/** @typedef {{key: string, ids: string[], at: number, newest: any, others: any[]}} Burst `others` newest first */

/** @param {any[]} decisions newest first @returns {Burst[]} */
export function bursts(decisions) {
  /** @type {Map<string, any[]>} */ const alike = new Map();
  for (const one of decisions) {
    const key = keyOf(one);
    const known = alike.get(key);
    if (known) known.push(one);
    else alike.set(key, [one]);
  }
  const found = [];
  for (const one of decisions) {
    const all = /** @type {any[]} */ (alike.get(keyOf(one)));
    if (all.length < LEAST) found.push(burst(one.id, [one]));
    else if (all[all.length - 1] === one) found.push(burst(keyOf(one), all));
  }
  return found;
}

function burst(key, all) {
  return { key, ids: all.map((one) => one.id), at: all[all.length - 1].at, newest: all[0], others: all.slice(1) };
}

/** Of each decision once: decisions do not change. @type {WeakMap<any, string>} */
const keys = new WeakMap();

function keyOf(one) {
  let key = keys.get(one);
  if (key === undefined) {
    key = one.gap ? one.id : `${Math.floor(one.at / SPAN_S)} ${one.kind} ${one.department} ${shape(one)}`;
    keys.set(one, key);
  }
  return key;
}

/** A sentence without its numbers and names. */
function shape(one) {
  return String(one.sentence).replace(NUMBERED, "#").replace(LISTED, "#").replace(PLURAL, "$1");
}
