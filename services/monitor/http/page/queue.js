// @ts-check
// The queue of one department at a time: first why jobs wait, counted, then the jobs.
//
// Rules
//   1. A queue is what waits. The server sends the first 200 rows of it and the counts of all; what is not shown is said as
//      a number.
//   2. A reason is a filter: pressed, it shows the jobs that wait for it (of the rows that are here).
//   3. Rows keep their place and their focus when others come and go.

import { el, h, keyed, say } from "./dom.js";
import { byName, count, duration, number, seconds, sentence } from "./format.js";
import { link, told, unitLink } from "./links.js";
import { now } from "./session.js";
import { oldest, waiting } from "./summary.js";

const FIRST = window.matchMedia("(max-width: 56.2em)").matches ? 8 : 25;
const RUNS = new Set(["running", "completing", "starting"]);

export class Queue {
  /** @param {import("./model.js").Model} model */
  constructor(model) {
    this.model = model;
    this.chosen = "";
    /** @type {string | null} */ this.reason = null;
    this.rows = FIRST;
    this.parts = {
      none: h("p", { class: "empty" }),
      reasons: h("ul", { class: "reasons", "aria-label": "Why jobs wait; select one to see its jobs" }),
      table: h(
        "table",
        { class: "jobs" },
        h(
          "thead",
          null,
          h(
            "tr",
            null,
            ...["Job", "User", "State", "Size", "For", "Why it waits"].map((name) => h("th", { scope: "col" }, name)),
          ),
        ),
        h("tbody"),
      ),
      more: h("p", { class: "more" }),
    };
    this.body = /** @type {any} */ (this.parts.table.lastElementChild);
    const wider = h("button", { type: "button", onclick: () => this.widen() });
    this.parts.more.append(h("span"), wider);
    el("queue-body").append(...Object.values(this.parts));
  }

  widen() {
    this.rows = Number.MAX_SAFE_INTEGER;
    this.draw();
  }

  draw() {
    const names = this.model
      .listed()
      .filter((row) => row.kind !== "web" && this.model.queues.has(row.department))
      .map((row) => row.department);
    if (!names.includes(this.chosen)) this.choose(names[0] ?? "");
    keyed(
      el("queue-of"),
      names.length > 1 ? names : [],
      (name) => name,
      (name) => this.tab(name),
      (button, name) => {
        button.setAttribute("aria-pressed", String(name === this.chosen));
        say(button.lastElementChild, number(waiting(this.model.departments.get(name))));
      },
    );
    this.reasons();
    this.jobs();
  }

  choose(name) {
    this.chosen = name;
    this.reason = null;
    this.rows = FIRST;
  }

  tab(name) {
    const press = () => {
      this.choose(name);
      this.draw();
    };
    return h(
      "button",
      { type: "button", onclick: press },
      h("span", { class: `swatch ${this.model.own(name)}`, "aria-hidden": "true" }),
      name,
      " ",
      h("b"),
    );
  }

  reasons() {
    const found = Object.entries(this.model.departments.get(this.chosen)?.waiting ?? {}).sort(
      (a, b) => b[1].count - a[1].count || byName(a[0], b[0]),
    );
    if (this.reason !== null && !found.some(([code]) => code === this.reason)) this.reason = null;
    const most = Math.max(1, ...found.map(([, one]) => one.count));
    keyed(
      this.parts.reasons,
      found,
      ([code]) => code,
      ([code]) => this.reasonOf(code),
      (item, [code, one]) => {
        const button = item.firstElementChild;
        button.setAttribute("aria-pressed", String(this.reason === code));
        button.style.setProperty("--share", `${(100 * one.count) / most}%`);
        say(button.children[0], number(one.count));
        say(button.children[1], sentence(one.sentence || code.replaceAll("_", " ")));
        const since = seconds(one.since);
        say(button.children[2], oldest(since === null ? one.oldest_s : now() - since));
      },
    );
  }

  reasonOf(code) {
    const press = () => {
      this.reason = this.reason === code ? null : code;
      this.draw();
    };
    return h(
      "li",
      null,
      h(
        "button",
        { type: "button", onclick: press },
        h("b"),
        h("span", { class: "words" }),
        h("span", { class: "soft" }),
      ),
    );
  }

  jobs() {
    const all = this.model.queues.get(this.chosen) ?? [];
    const fitting =
      this.reason === null ? all : all.filter((row) => row.reason?.code === this.reason && !RUNS.has(row.state));
    const shown = fitting.slice(0, this.rows);
    const body = this.body;
    keyed(
      body,
      shown,
      (row) => row.unit,
      () => jobRow(),
      (line, row) => this.change(line, row),
    );
    this.parts.table.hidden = shown.length === 0;
    say(this.parts.none, this.emptyWords(all));
    this.parts.none.hidden = shown.length > 0;
    const department = this.model.departments.get(this.chosen);
    const known = this.reason === null ? waiting(department) : (department?.waiting?.[this.reason]?.count ?? 0);
    const total = Math.max(known, fitting.length);
    const left = total - shown.length;
    this.parts.more.hidden = left <= 0;
    say(this.parts.more.children[0], left > 0 ? `… and ${number(left)} more` : "");
    const here = fitting.length - shown.length;
    /** @type {HTMLElement} */ (this.parts.more.children[1]).hidden = here <= 0;
    say(this.parts.more.children[1], `Show ${number(here)} of them`);
  }

  emptyWords(all) {
    if (!this.chosen) return "No queue is visible to you; web departments have none.";
    return all.length ? "None of the jobs shown waits for this any longer." : `No job of ${this.chosen} waits.`;
  }

  change(line, row) {
    const runs = RUNS.has(row.state);
    const since = seconds(runs ? row.started_at : row.submitted_at);
    say(line.children[4], since === null ? "" : duration(now() - since + (runs ? (row.ran_before_s ?? 0) : 0)));
    if (line.phoenixRow === row) return;
    line.phoenixRow = row;
    const name =
      row.name && row.name !== row.unit ? h("span", { class: "soft name", title: row.name }, row.name) : null;
    line.children[0].replaceChildren(unitLink(row.unit), ...(name ? [" ", name] : []));
    say(line.children[1], row.user);
    line.children[2].replaceChildren(h("span", { class: `badge is-${row.state}` }, row.state));
    say(line.children[3], row.nodes > 1 ? `${row.nodes} × ${count(row.cores, "core")}` : count(row.cores, "core"));
    line.children[5].replaceChildren(
      ...(runs && row.hosts?.length ? placed(row.hosts) : told(row.sentence ?? "", this.model, row)),
    );
  }

  /** Times in rows advance while nothing happens. */
  tick() {
    for (const line of this.body.rows) this.change(line, /** @type {any} */ (line).phoenixRow);
  }
}

function jobRow() {
  return h(
    "tr",
    null,
    h("th", { scope: "row", class: "id" }),
    h("td", { class: "user" }),
    h("td", { class: "how" }),
    h("td", { class: "size" }),
    h("td", { class: "for" }),
    h("td", { class: "where" }),
  );
}

function placed(hosts) {
  const nodes = hosts.slice(0, 4).flatMap((name, i) => (i ? [", ", link("host", name)] : [link("host", name)]));
  return hosts.length > 4 ? [...nodes, ` and ${hosts.length - 4} more`] : nodes;
}
