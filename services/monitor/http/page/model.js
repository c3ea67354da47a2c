// @ts-check
// What the page knows: the last whole picture, with every change since folded in. Nothing here touches the document.
//
// Rules
//   1. A `picture` replaces everything but the decisions: those are merged by id, so that a resumed stream loses none and
//      shows none twice. If the server could not say all that was missed, a gap stands in their place, and is shown.
//   2. Everything is bounded: hosts and departments by the cloud, queues by the server (200 rows each), decisions by KEPT.
//   3. `take` tells which parts changed; views draw those, once a frame.
//   4. What one person has seen is forgotten with the session (`forget`): the next one may see less, or another cloud.
//   5. A department's colour is its place in the configuration's order: it does not change while the page is open.

import { byName, seconds } from "./format.js";

const KEPT = 500; // decisions: some 100 screens; older ones are `phoenix events`
const GAP = 999_999_999; // as the index of an id: behind everything of its position
const COLOURS = 8;
const ALL = ["head", "hosts", "departments", "queue", "decisions"];

/** What a host of this state is marked with; held and free have none. */
export const MARKS = { draining: "D", lost: "L", absent: "A", cordoned: "C", quarantined: "Q" };

export class Model {
  constructor() {
    this.position = 0;
    this.at = 0;
    this.cloud = "";
    /** @type {Map<string, any>} */ this.hosts = new Map();
    /** @type {string[]} names in natural order */ this.order = [];
    /** @type {Map<string, any>} */ this.departments = new Map();
    /** @type {Map<string, any[]>} */ this.queues = new Map();
    /** @type {any[]} newest first */ this.decisions = [];
    /** @type {any} */ this.alerts = {};
    /** @type {Map<string, number>} */ this.slots = new Map();
  }

  /** As before the first picture. */
  forget() {
    Object.assign(this, new Model());
  }

  /** Fold one event of the stream. @param {string} kind @param {any} data @returns {string[]} parts that changed */
  take(kind, data) {
    if (kind === "picture") return this.picture(data);
    if (data.position) this.position = data.position;
    if (data.at) this.at = seconds(data.at) ?? this.at;
    if (data.alerts) this.alerts = data.alerts;
    if (kind === "hosts") return this.changedHosts(data);
    if (kind === "departments") return this.changedDepartments(data);
    if (kind === "queue") return this.changedQueues(data);
    if (kind === "decisions") return this.merge(data.decisions ?? data, false);
    return [];
  }

  /** @param {any} data */
  picture(data) {
    this.position = data.position ?? 0;
    this.at = seconds(data.at) ?? 0;
    this.cloud = data.cloud ?? "";
    this.alerts = data.alerts ?? {};
    this.hosts = new Map((data.hosts ?? []).map((row) => [row.host, row]));
    this.order = [...this.hosts.keys()].sort(byName);
    this.departments = new Map();
    this.changedDepartments(data);
    this.queues = new Map();
    this.changedQueues(data);
    this.merge(data.decisions ?? [], data.missed === true);
    return ALL;
  }

  changedHosts(data) {
    const before = this.hosts.size;
    let known = true;
    for (const row of data.hosts ?? []) {
      known &&= this.hosts.has(row.host);
      this.hosts.set(row.host, row);
    }
    for (const name of data.removed ?? []) this.hosts.delete(name);
    if (!known || this.hosts.size !== before) this.order = [...this.hosts.keys()].sort(byName);
    return ["head", "hosts"];
  }

  changedDepartments(data) {
    for (const row of data.departments ?? []) {
      this.departments.set(row.department, row);
      if (!this.slots.has(row.department)) this.slots.set(row.department, this.slots.size);
    }
    for (const name of data.removed ?? []) this.departments.delete(name);
    return ["head", "departments", "queue", "hosts"];
  }

  changedQueues(data) {
    const queues = data.queue ?? (data.department ? { [data.department]: data.jobs ?? data.rows ?? [] } : {});
    for (const [name, rows] of Object.entries(queues)) this.queues.set(name, /** @type {any[]} */ (rows));
    return ["queue", "head"];
  }

  /** Rule 1. @param {any[]} news @param {boolean} missed */
  merge(news, missed) {
    const known = new Set(this.decisions.map((one) => one.id));
    const fresh = news.filter((one) => !known.has(one.id)).map((one) => ({ ...one, at: seconds(one.at) ?? 0 }));
    const newest = this.decisions[0];
    if (missed && newest && !newest.gap) fresh.push({ id: `${parts(newest.id)[0]}.${GAP}`, gap: true, at: newest.at });
    if (!fresh.length) return [];
    this.decisions = [...fresh, ...this.decisions].sort(newestFirst).slice(0, KEPT);
    return ["decisions", "head"];
  }

  /** The class that brings a department's colour. @param {string | null | undefined} name */
  own(name) {
    const slot = name ? this.slots.get(name) : undefined;
    return slot === undefined ? "own-0" : `own-${(slot % COLOURS) + 1}`;
  }

  /** Departments in the order of their colours. @returns {any[]} */
  listed() {
    return [...this.departments.values()];
  }
}

/** What is to be said of a host: held, free, or what keeps it from both. @param {any} row */
export function stateOf(row) {
  if (row.lost || row.state === "lost") return "lost";
  if (row.state === "draining") return "draining";
  if (row.state === "absent") return "absent";
  if (row.quarantine) return "quarantined";
  if (row.cordoned !== null && row.cordoned !== undefined && row.cordoned !== false) return "cordoned";
  return row.state;
}

/** What a person's word on a host means, and why it was given; null if there is none. @param {any} row */
export function apartOf(row) {
  if (typeof row.cordoned !== "string") return null;
  const until = row.drain_until ? ` until ${String(row.drain_until).slice(0, 19).replace("T", " ")} UTC` : "";
  const stays = (row.units ?? []).length > 0 ? ", what runs there stays" : "";
  return `${row.drain ? `draining${until}` : `cordoned${stays}`}${row.cordoned ? `: ${row.cordoned}` : ""}`;
}

/** Ids are <position>.<index>. */
function newestFirst(a, b) {
  const [p, i] = parts(a.id);
  const [q, j] = parts(b.id);
  return q - p || j - i;
}

function parts(id) {
  const [position, index] = String(id).split(".");
  return [Number(position) || 0, Number(index) || 0];
}
