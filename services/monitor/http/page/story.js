// @ts-check
// One job's, host's, instance's or department's life in steps with their causes, and why it is as it is now.
//
// Rules
//   1. The address says which (`#/job/17`): links, the search and the back key all go through it.
//   2. The panel takes the focus when it opens and gives it back when it closes (Esc, its button, or the address). On a narrow
//      screen it covers the page and the page behind is inert; on a wide one both can be used.
//   3. While it is open it is asked again when a decision names its entity, at most once in AGAIN_S; the place where a user
//      reads is kept.
//   4. What led to a step stands below it, nearest first. If that is an earlier step of the story it is a button that goes
//      there; the step just before is not repeated. Facts that were decided together have one position, so that a place is
//      position and index.
//   5. What only others may see is not asked for: a department's people and another department.

import { el, h, say } from "./dom.js";
import { clock, count, duration, number, seconds, whole } from "./format.js";
import { entityOf, link, linked, told, unitLink } from "./links.js";
import { apartOf, stateOf } from "./model.js";
import { ask, now, Refused } from "./session.js";
import { named } from "./size.js";

const AGAIN_S = 1;
const TITLES = { job: "Job", host: "Host", instance: "Instance", department: "Department" };
const LONG = 10; // steps: more are longer than the panel
const MOST = 500; // steps that phoenix story prints (STEPS_MAX of the monitor)
const NARROW = "(max-width: 56.2em)";

export class Story {
  /** @param {import("./model.js").Model} model */
  constructor(model) {
    this.model = model;
    /** @type {{role: string, department?: string | null} | null} */ this.who = null;
    this.panel = /** @type {HTMLDialogElement} */ (el("story"));
    this.body = el("story-body");
    /** @type {{kind: string, name: string} | null} */ this.entity = null;
    /** @type {Element | null} */ this.opener = null;
    this.asked = 0;
    this.timer = 0;
    el("story-close").addEventListener("click", () => this.leave());
    this.panel.addEventListener("cancel", (event) => {
      event.preventDefault();
      this.leave();
    });
    document.addEventListener(
      "keydown",
      (event) => event.key === "Escape" && this.entity !== null && !event.defaultPrevented && this.leave(),
    );
    window.addEventListener("hashchange", () => this.follow());
  }

  /** Show what the address names, or nothing. */
  follow() {
    const entity = entityOf(location.hash);
    if (entity === null) return this.close();
    if (this.entity && this.entity.kind === entity.kind && this.entity.name === entity.name) return;
    if (!this.panel.open) {
      this.opener = document.activeElement;
      if (window.matchMedia(NARROW).matches) this.panel.showModal();
      else this.panel.show();
    }
    this.entity = entity;
    document.body.classList.add("reads");
    say(el("story-title"), `${TITLES[entity.kind]} ${entity.name}`);
    this.body.replaceChildren(h("p", { class: "soft" }, "Reading …"));
    this.panel.scrollTop = 0;
    el("story-title").focus();
    this.load();
  }

  leave() {
    history.pushState(null, "", location.pathname + location.search);
    this.close();
  }

  close() {
    window.clearTimeout(this.timer);
    this.entity = null;
    if (!this.panel.open) return;
    this.panel.close();
    this.body.replaceChildren();
    document.body.classList.remove("reads");
    const back = this.opener;
    this.opener = null;
    if (back instanceof HTMLElement && back.isConnected) back.focus();
  }

  /** Rule 3. @param {any[]} decisions */
  concerned(decisions) {
    const name = this.entity?.name;
    if (!name || this.timer) return;
    if (!decisions.some((one) => [one.job, one.unit, one.host, one.department].includes(name))) return;
    this.timer = window.setTimeout(() => {
      this.timer = 0;
      this.load();
    }, AGAIN_S * 1000);
  }

  async load() {
    const entity = this.entity;
    if (entity === null) return;
    const mine = ++this.asked;
    if (this.foreign(entity)) {
      const words = `Only members of ${entity.name} and operators can see its history.`;
      return this.draw(entity, null, null, section("Life", h("p", { class: "soft" }, words)));
    }
    const name = encodeURIComponent(entity.name);
    const kind = `?kind=${entity.kind === "instance" ? "job" : entity.kind}`;
    const asks = [
      ask(`/v1/story/${name}${kind}`),
      ask(`/v1/why/${name}${kind}`),
      entity.kind === "job" ? ask(`/v1/jobs/${name}`) : Promise.resolve(null),
    ];
    const [story, why, job] = await Promise.allSettled(asks);
    if (mine !== this.asked || this.entity !== entity) return;
    this.draw(entity, valueOf(job), this.why(why), this.life(story));
  }

  /** @param {{kind: string, name: string}} entity @param {any} job @param {any} now @param {any} past */
  draw(entity, job, now, past) {
    const rows = this.facts(entity, job);
    const parts = [
      part(
        "known",
        rows.length
          ? h(
              "dl",
              { class: "facts" },
              ...rows.map(([key, value]) => h("div", null, h("dt", null, key), h("dd", null, ...[value].flat()))),
            )
          : null,
      ),
      part("now", now),
      part("past", past),
    ].filter((one) => one !== null);
    const { scrollTop } = this.panel;
    this.body.replaceChildren(...parts);
    this.panel.scrollTop = scrollTop;
  }

  /** Rule 5. @param {{kind: string, name: string}} entity */
  foreign(entity) {
    const all = !this.who || this.who.role === "operator";
    return !all && entity.kind === "department" && entity.name !== this.who?.department;
  }

  facts(entity, job) {
    if (entity.kind === "host") return this.hostFacts(this.model.hosts.get(entity.name));
    if (entity.kind === "job" && job) return this.jobFacts(job);
    const row = this.model.departments.get(entity.name);
    if (!row) return [];
    return [["Hosts", `${row.hosts_held} held, may keep ${row.hosts_quota}, wants ${row.hosts_demanded}`]];
  }

  hostFacts(row) {
    if (!row) return [];
    const state = stateOf(row);
    const since = seconds(row.since);
    return [
      ["State", `${state}${since === null ? "" : ` for ${duration(now() - since)}`}`],
      ["Held by", row.department ? link("department", row.department) : "no department"],
      row.owner && row.owner !== row.department ? ["Owner", `${row.owner}${row.lent ? " (lent)" : ""}`] : null,
      ...named(row),
      row.units?.length ? ["Runs", row.units.flatMap((unit, i) => [i ? ", " : null, unitLink(unit)])] : null,
      typeof row.quarantine === "string" ? ["Quarantine", row.quarantine] : null,
      typeof row.cordoned === "string" ? ["Set apart", apartOf(row)] : null,
    ].filter((one) => one !== null);
  }

  jobFacts(job) {
    const began = seconds(job.started_at);
    const ended = seconds(job.ended_at);
    return [
      job.name && job.name !== job.unit ? ["Name", job.name] : null,
      [
        "State",
        job.state.replace("_", " ") +
          (job.exit_code !== null && job.exit_code !== undefined ? `, exit code ${job.exit_code}` : ""),
      ],
      ["Whose", [`${job.user} of `, link("department", job.department)]],
      job.nodes ? ["Size", `${count(job.nodes, "node")} × ${count(job.cores ?? 1, "core")}`] : null,
      ["Submitted", whole(job.submitted_at)],
      began !== null
        ? ["Started", `${whole(job.started_at)}${ended === null ? `, ${duration(now() - began)} ago` : ""}`]
        : null,
      ended !== null ? ["Ended", whole(job.ended_at)] : null,
      ...used(job),
      job.walltime_s ? ["Time limit", duration(job.walltime_s)] : null,
      job.hosts?.length ? ["Hosts", linked(job.hosts.join(", "), this.model)] : null,
      (job.attempts?.length ?? 0) > 1 ? ["Attempts", String(job.attempts.length)] : null,
    ].filter((one) => one !== null);
  }

  why(answer) {
    if (answer.status === "rejected") {
      const { reason } = answer;
      return reason instanceof Refused && [400, 403, 404].includes(reason.status)
        ? null
        : section("Why now", h("p", { class: "soft" }, reason.message));
    }
    const { sentences = [], remedies = [] } = answer.value;
    const words = answer.value.told ?? sentences.map((sentence, i) => ({ sentence, remedy: remedies[i] }));
    const start = answer.value.start?.sentence;
    if (!words.length && !start) return null;
    const items = words.map((one) =>
      h(
        "li",
        null,
        ...told(one.sentence, this.model),
        one.remedy ? h("span", { class: "remedy" }, "To change it: ", ...linked(one.remedy, this.model)) : null,
      ),
    );
    if (start) items.push(h("li", null, ...linked(`When it starts: ${start}.`, this.model)));
    return section("Why now", h("ol", { class: "why" }, ...items));
  }

  life(answer) {
    if (answer.status === "rejected") return section("Life", h("p", { class: "soft" }, answer.reason.message));
    const steps = answer.value.steps ?? [];
    if (!steps.length) return section("Life", h("p", { class: "soft" }, "It has no history yet."));
    const known = new Map(steps.map((step) => [place(step.position, step.index), step]));
    const more = answer.value.more
      ? h(
          "p",
          { class: "soft more" },
          "Earlier steps are not shown; those that are kept: ",
          h("code", null, `phoenix story ${this.entity?.name ?? ""} --last ${MOST}`),
        )
      : null;
    return section(
      "Life",
      steps.length > LONG ? this.toEnd(steps.length) : null,
      more,
      h("ol", { class: "life" }, ...steps.map((step, i) => this.step(step, steps[i - 1], known))),
    );
  }

  /** A long life is read from its end. @param {number} n */
  toEnd(n) {
    const go = () => this.show(this.body.querySelector(".life > li:last-child"));
    return h("button", { type: "button", class: "plain life-end", onclick: go }, `To the last of ${number(n)} steps`);
  }

  /** @param {Element | null} step */
  show(step) {
    /** @type {HTMLElement | null} */ (step)?.focus();
    step?.scrollIntoView({ block: "center" });
  }

  step(step, earlier, known) {
    const at = seconds(step.at) ?? 0;
    const gap = earlier ? at - (seconds(earlier.at) ?? at) : 0;
    const time = h("time", { datetime: new Date(at * 1000).toISOString(), title: whole(at) }, clock(at));
    return h(
      "li",
      { "data-kind": step.kind, "data-place": place(step.position, step.index), tabindex: "-1" },
      h("span", { class: "when" }, time, gap >= 1 ? h("span", { class: "soft" }, ` + ${duration(gap)}`) : null),
      h("span", { class: "words" }, ...told(step.sentence ?? step.kind, this.model, step)),
      ...this.causes(step, earlier, known),
    );
  }

  /** Rule 4. */
  causes(step, earlier, known) {
    const others = (step.because ?? []).map((one) =>
      h("span", { class: "cause" }, "because ", ...linked(one.sentence, this.model), before(step, one)),
    );
    const mine = known.get(place(step.cause, step.cause_index));
    if (!mine || mine === step || mine === earlier) return others;
    const go = () => this.show(this.body.querySelector(`[data-place="${place(mine.position, mine.index)}"]`));
    const back = h("button", { type: "button", class: "cause plain", onclick: go }, `because ${mine.sentence}`);
    return [back, ...others];
  }
}

/** What a job has used that has begun. @param {any} job */
function used(job) {
  if (!("cpu_seconds" in job && job.attempts?.some((/** @type {any} */ one) => one.began_at))) return [];
  const until = job.so_far ? " so far" : "";
  return [
    ["CPU time", job.cpu_seconds === null ? "unknown" : duration(job.cpu_seconds) + until],
    ["Peak memory", job.max_rss_mb === null ? "unknown" : `${number(job.max_rss_mb)} MiB${until}`],
  ];
}

/** @param {number | null} position @param {number | null} index */
function place(position, index) {
  return `${Number(position)}.${Number(index)}`;
}

/** How long before a step its cause was; nothing if that was at once. */
function before(step, cause) {
  const gap = (seconds(step.at) ?? 0) - (seconds(cause.at) ?? 0);
  return gap >= 1 ? ` (${duration(gap)} before)` : "";
}

function section(title, ...children) {
  return [h("h3", null, title), ...children];
}

function part(name, children) {
  return children === null ? null : h("section", { class: `part ${name}` }, ...[children].flat());
}

function valueOf(settled) {
  return settled.status === "fulfilled" ? settled.value : null;
}
