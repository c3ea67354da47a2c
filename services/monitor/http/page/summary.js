// @ts-check
// The cloud in a line of words: figures that are always there, and alerts, which are said aloud by screen readers.
// Claims are made and met within a second every day: one is an alert only when it has been open for CLAIM_S.

import { el, h, keyed, say } from "./dom.js";
import { clock, count, duration, number, seconds, zone } from "./format.js";
import { linked } from "./links.js";
import { stateOf } from "./model.js";
import { now } from "./session.js";

const CLAIM_S = 5;
const NAMED = 4; // names in one alert
const OUT = new Set(["lost", "absent", "quarantined", "cordoned"]);

/** @param {import("./model.js").Model} model */
export function summary(model) {
  const figures = figuresOf(model);
  keyed(
    el("figures"),
    figures,
    (one) => one.name,
    (one) => h("li", null, h("span", { class: "label" }, one.name), h("b"), h("span", { class: "note" })),
    (item, one) => {
      say(item.children[1], one.value);
      say(item.children[2], one.note);
    },
  );
  const alerts = alertsOf(model, now());
  keyed(
    el("alerts"),
    alerts,
    (one) => one.key,
    (one) => h("li", { class: one.level }),
    (item, one) => {
      if (item.textContent !== one.text) item.replaceChildren(...linked(one.text, model));
    },
  );
}

function figuresOf(model) {
  const rows = model.listed();
  const states = [...model.hosts.values()].map(stateOf);
  const jobs = { running: 0, waiting: 0 };
  let wanted = 0;
  let serving = 0;
  for (const row of rows) {
    jobs.running += (row.jobs?.running ?? 0) + (row.jobs?.completing ?? 0);
    jobs.waiting += waiting(row);
    wanted += row.instances_wanted ?? 0;
    serving += row.instances_serving ?? 0;
  }
  const claims = openClaims(model);
  const held = [...model.hosts.values()].filter((row) => row.state === "held").length;
  const free = states.filter((state) => state === "free").length;
  const rest = [...model.hosts.values()].filter((row) => row.state !== "held");
  const out = rest.filter((row) => OUT.has(stateOf(row))).length;
  const left = `${number(free)} free${out ? `, ${number(out)} out of use` : ""}`;
  const claimed = claims.reduce((sum, one) => sum + (one.missing ?? 0), 0);
  return [
    { name: "Hosts held", value: `${number(held)} of ${number(model.hosts.size)}`, note: left },
    { name: "Jobs running", value: number(jobs.running), note: `${number(jobs.waiting)} waiting` },
    {
      name: "Web instances",
      value: `${number(serving)} of ${number(wanted)}`,
      note: serving >= wanted ? "the target is reached" : `${number(wanted - serving)} short`,
    },
    {
      name: "Claims",
      value: claims.length ? `${claims.length} open` : "none open",
      note: claims.length ? `for ${count(claimed, "host")}` : "web demand is met",
    },
    { name: "Last change", value: clock(model.at), note: `${zone()}, position ${number(model.position)}` },
  ];
}

/** Units that have not started. @param {any} row a department's */
export function waiting(row) {
  if (!row) return 0;
  const told = Object.values(row.waiting ?? {}).reduce((sum, one) => sum + one.count, 0);
  return told || (row.jobs?.pending ?? 0) + (row.jobs?.held ?? 0);
}

function openClaims(model) {
  const found = model.alerts.claims_open ?? [];
  return Array.isArray(found) ? found : Object.values(found);
}

/** @returns {{key: string, level: string, text: string}[]} */
export function alertsOf(model, at) {
  const alerts = [];
  const apart = seconds(model.alerts.broker_lost);
  if (apart !== null) {
    const text = `The monitor has not reached the broker since ${clock(apart)}: this is the state of that time.`;
    alerts.push({ key: "broker", level: "bad", text });
  }
  for (const row of model.listed()) {
    const since = seconds(row.signal_missing_since);
    if (since === null) continue;
    const text = `No load of ${row.department} has been reported since ${clock(since)}: its number of instances is held.`;
    alerts.push({ key: `signal ${row.department}`, level: "warn", text });
  }
  for (const claim of openClaims(model)) {
    const since = seconds(claim.at) ?? at;
    const who = claim.department;
    if (at - since >= CLAIM_S)
      alerts.push({
        key: `claim ${who} ${since}`,
        level: "bad",
        text: `${who} has waited for ${count(claim.missing ?? 1, "host")} since ${clock(since)}.`,
      });
  }
  for (const [state, words, level] of [
    ["lost", "lost", "bad"],
    ["quarantined", "in quarantine", "warn"],
    ["absent", "absent", "warn"],
  ]) {
    const names = model.order.filter((name) => stateOf(model.hosts.get(name)) === state);
    if (!names.length) continue;
    const which = names.slice(0, NAMED).join(", ") + (names.length > NAMED ? " …" : "");
    const text = `${count(names.length, "host")} ${names.length === 1 ? "is" : "are"} ${words}: ${which}`;
    alerts.push({ key: state, level, text });
  }
  return alerts;
}

/** How long, in words, for a waiting reason. @param {number | null | undefined} oldest_s */
export function oldest(oldest_s) {
  return oldest_s === null || oldest_s === undefined ? "" : `the oldest for ${duration(oldest_s)}`;
}
