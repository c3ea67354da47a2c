// @ts-check
// Names in sentences become links to their stories.
//
// Rules
//   1. Only names that are known are linked: what the sentence's own record names, hosts and departments of the cloud, and
//      `job 17`, `17_3`, `web.5` where they stand as words. The rest of a sentence is text, whatever it looks like.
//   2. Sentences have times of UTC; the page shows people's own clock everywhere, so that these become times of it.
//   3. An address of the page is `#/<what>/<name>`, the name encoded; `entityOf` reads it back and refuses everything else.

import { h } from "./dom.js";
import { moment, seconds, sentence, whole } from "./format.js";
import { now } from "./session.js";

const STAMP = /\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z/g;
const WORD = /[\w.-]*\w/g;
const JOB = /^\d{1,12}(_\d{1,9})?$/;
const KINDS = new Set(["job", "host", "department", "instance"]);

/** @param {string} kind @param {string} name */
export function address(kind, name) {
  return `#/${kind}/${encodeURIComponent(name)}`;
}

/** @param {string} kind @param {string} name @param {string} [text] */
export function link(kind, name, text) {
  return h("a", { href: address(kind, name) }, text ?? name);
}

/** A unit is a job, an element of an array or an instance. @param {string} unit @param {string} [text] */
export function unitLink(unit, text) {
  return link(JOB.test(unit) ? "job" : "instance", unit, text);
}

/** What a fragment names. @param {string} hash @returns {{kind: string, name: string} | null} */
export function entityOf(hash) {
  const found = /^#\/(\w+)\/([^/]{1,300})$/.exec(hash);
  if (found === null || !KINDS.has(found[1])) return null;
  try {
    return { kind: found[1], name: decodeURIComponent(found[2]) };
  } catch {
    return null;
  }
}

/**
 * A text as a sentence (a capital first, unless it begins with a name) with its links.
 * @param {string} text
 * @param {import("./model.js").Model} model
 * @param {{job?: string, unit?: string, host?: string, department?: string, user?: string}} [about]
 * @returns {(Node | string)[]}
 */
export function told(text, model, about = {}) {
  const first = /^[\w.-]*\w/.exec(text)?.[0] ?? "";
  const named = first !== "" && (first === about.user || kindOf(first, "", "", model, about) !== null);
  const whole = sentence(text);
  return linked(named ? text[0] + whole.slice(1) : whole, model, about);
}

/** The same of any text, as it is. @param {string} text @param {import("./model.js").Model} model @param {any} [about] */
export function linked(text, model, about = {}) {
  const nodes = [];
  let from = 0;
  for (const match of text.matchAll(STAMP)) {
    const at = seconds(match[0]) ?? 0;
    const time = h("time", { datetime: match[0], title: whole(at) }, moment(at, now()));
    nodes.push(...named(text.slice(from, match.index), model, about), time);
    from = match.index + match[0].length;
  }
  return [...nodes, ...named(text.slice(from), model, about)].filter((node) => node !== "");
}

function named(text, model, about) {
  const nodes = [];
  let from = 0;
  for (const match of text.matchAll(WORD)) {
    const [word, end] = [match[0], match.index + match[0].length];
    const kind = kindOf(
      word,
      text.slice(Math.max(0, match.index - 8), match.index),
      text.slice(end, end + 12),
      model,
      about,
    );
    if (kind === null) continue;
    nodes.push(text.slice(from, match.index), link(kind, word));
    from = end;
  }
  return [...nodes, text.slice(from)];
}

/** What a word between `before` and `after` names; null: nothing. "a web department" is no department called web. */
function kindOf(word, before, after, model, about) {
  if (model.hosts.has(word) || word === about.host) return "host";
  if (model.departments.has(word)) return /^ (department|demand|instance|load)/.test(after) ? null : "department";
  if (JOB.test(word)) return word.includes("_") || /\b(job|element|unit)s? $/i.test(before) ? "job" : null;
  if (word === about.unit) return "instance";
  const dot = word.lastIndexOf(".");
  return dot > 0 && model.departments.has(word.slice(0, dot)) && /^\d+$/.test(word.slice(dot + 1)) ? "instance" : null;
}
