// @ts-check
// The grid of hosts: a cell a host, in the order of their names, in the colour of the department that holds it.
//
// Rules
//   1. Three densities by the number of hosts: tiles (name, cores, jobs), chips (number and fill), dots (fill alone). Many dots
//      are small: 2,000 take a third of a screen, so that what is below them is seen, too.
//   2. Colour says who holds it, height of the fill how many of its cores are in use; a letter and a frame say what else is
//      the matter (draining, lost, absent, cordoned, in quarantine). Free hosts are hollow. A corner: lent.
//   3. One cell of the grid is in the tab order. Arrows, Home and End move; Enter follows the cell's link to its story.
//   4. A host's place changes only when hosts come or go. A cell is changed only when its row was.

import { el, h, keyed, say } from "./dom.js";
import { byName, duration, number, seconds } from "./format.js";
import { MARKS, apartOf, stateOf } from "./model.js";
import { now } from "./session.js";
import { amounts } from "./size.js";

const TILES = 48; // at most this many hosts are tiles …
const CHIPS = 320; // … or chips
const MANY = 1000; // more are small dots
const PIPS = 16; // cores that are drawn one by one
const NONE = "";

export class Hosts {
  /** @param {import("./model.js").Model} model */
  constructor(model) {
    this.model = model;
    this.grid = el("grid");
    this.tip = el("tip");
    /** @type {string | null} whose are shown: a department, NONE for free ones, null for all */ this.shown = null;
    this.current = ""; // the host in the tab order
    this.grid.addEventListener("keydown", (event) => this.key(event));
    this.grid.addEventListener("focusin", (event) => this.entered(event.target));
    this.grid.addEventListener("focusout", () => this.hide());
    this.grid.addEventListener("pointerover", (event) => this.pointed(event.target, false));
    this.grid.addEventListener("pointerleave", () => this.hide());
    this.seen = new Map();
  }

  forget() {
    this.shown = null;
  }

  draw() {
    const { model } = this;
    const density = model.order.length <= TILES ? "tiles" : model.order.length <= CHIPS ? "chips" : "dots";
    this.grid.classList.toggle("many", model.order.length > MANY);
    if (this.grid.dataset.density !== density) {
      this.grid.dataset.density = density;
      this.grid.replaceChildren();
      this.seen.clear();
    }
    if (!model.hosts.has(this.current)) this.current = model.order[0] ?? "";
    keyed(
      this.grid,
      model.order,
      (name) => name,
      (name) => cell(name, density),
      (item, name) => this.change(item, name),
    );
    for (const name of this.seen.keys()) if (!model.hosts.has(name)) this.seen.delete(name);
    this.legend();
  }

  change(item, name) {
    const row = this.model.hosts.get(name);
    const stop = name === this.current ? "0" : "-1";
    const link = item.firstElementChild;
    if (link.getAttribute("tabindex") !== stop) link.setAttribute("tabindex", stop);
    const own = this.model.own(row.department);
    const faded = this.shown !== null && (row.state === "free" ? NONE : row.department) !== this.shown;
    item.classList.toggle("faded", faded);
    if (this.seen.get(name) === row && link.classList.contains(own)) return;
    this.seen.set(name, row);
    const state = stateOf(row);
    link.className = `host ${own} is-${state}${row.lent ? " lent" : ""}`;
    link.dataset.mark = MARKS[state] ?? "";
    link.style.setProperty("--fill", `${fill(row)}%`);
    link.setAttribute("aria-label", told(row, state));
    if (link.childElementCount) inside(link, row, state);
  }

  legend() {
    const counts = new Map(
      [...this.model.slots.keys()].filter((name) => this.model.departments.has(name)).map((name) => [name, 0]),
    );
    const marks = new Map();
    let free = 0;
    for (const row of this.model.hosts.values()) {
      const state = stateOf(row);
      if (row.department && row.state === "held") counts.set(row.department, (counts.get(row.department) ?? 0) + 1);
      else if (state === "free") free += 1;
      if (MARKS[state]) marks.set(state, (marks.get(state) ?? 0) + 1);
    }
    const items = [...counts].map(([name, n]) => ({
      key: `of ${name}`,
      whose: name,
      label: name,
      n,
      own: this.model.own(name),
    }));
    items.push({ key: "free", whose: NONE, label: "free", n: free, own: "own-0" });
    keyed(
      el("legend"),
      items,
      (one) => one.key,
      (one) => this.chip(one),
      (chip, one) => {
        chip.setAttribute("aria-pressed", String(this.shown === one.whose));
        say(chip.lastElementChild, number(one.n));
      },
    );
    const words = [...marks].sort((a, b) => byName(a[0], b[0])).map(([state, n]) => `${MARKS[state]} ${state} ${n}`);
    if ([...this.model.hosts.values()].some((row) => row.lent)) words.push("◥ lent by its owner");
    say(el("marks"), words.length ? words.join("   ") : "");
  }

  chip(one) {
    const toggle = () => {
      this.shown = this.shown === one.whose ? null : one.whose;
      this.draw();
    };
    const swatch = h("span", {
      class: `swatch ${one.own}${one.whose === NONE ? " hollow" : ""}`,
      "aria-hidden": "true",
    });
    return h(
      "button",
      { type: "button", class: "chip", onclick: toggle },
      swatch,
      h("span", null, one.label),
      h("b", null, number(one.n)),
    );
  }

  /** Rule 3. @param {KeyboardEvent} event */
  key(event) {
    const cells = /** @type {HTMLElement[]} */ ([...this.grid.children].map((item) => item.firstElementChild));
    const at = cells.indexOf(/** @type {HTMLElement} */ (document.activeElement));
    const columns = getComputedStyle(this.grid).gridTemplateColumns.split(" ").length;
    const steps = {
      ArrowLeft: -1,
      ArrowRight: 1,
      ArrowUp: -columns,
      ArrowDown: columns,
      Home: -at,
      End: cells.length - 1 - at,
    };
    const step = steps[event.key];
    if (at < 0 || step === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const next = cells[at + step];
    if (next === undefined) return;
    next.focus();
  }

  /** The cell that has the focus is the one in the tab order. @param {EventTarget | null} target */
  entered(target) {
    const link = /** @type {HTMLElement | null} */ (target instanceof Element ? target.closest("a.host") : null);
    if (link === null) return;
    for (const stop of this.grid.querySelectorAll('a[tabindex="0"]')) stop.setAttribute("tabindex", "-1");
    link.setAttribute("tabindex", "0");
    this.current = link.dataset.host ?? "";
    this.pointed(link, true);
  }

  /** @param {EventTarget | null} target @param {boolean} focused */
  pointed(target, focused) {
    const link = /** @type {HTMLElement | null} */ (target instanceof Element ? target.closest("a.host") : null);
    if (link === null || (focused && !link.matches(":focus-visible"))) return;
    const row = this.model.hosts.get(link.dataset.host);
    if (row === undefined) return;
    this.tip.replaceChildren(...tipOf(row, this.model));
    this.tip.hidden = false;
    place(this.tip, link.getBoundingClientRect());
  }

  hide() {
    this.tip.hidden = true;
  }
}

function cell(name, density) {
  const link = h("a", { href: `#/host/${encodeURIComponent(name)}`, "data-host": name, tabindex: "-1" });
  if (density === "tiles") {
    link.append(
      h("span", { class: "name" }, name),
      h("span", { class: "use" }),
      h("span", { class: "work" }),
      h("span", { class: "pips" }),
    );
  } else if (density === "chips") link.append(h("span", { class: "name" }, tail(name)));
  return h("li", null, link);
}

function inside(link, row, state) {
  const use = link.querySelector(".use");
  if (use === null) return;
  say(use, `${row.cores_used}/${row.cores}`);
  const units = row.units ?? [];
  const work = units.length
    ? units.slice(0, 2).join(", ") + (units.length > 2 ? ` +${units.length - 2}` : "")
    : state === "held"
      ? "idle"
      : state;
  say(link.querySelector(".work"), work);
  link.querySelector(".work").classList.toggle("quiet", units.length === 0);
  pips(link.querySelector(".pips"), row);
}

/** A mark a core, or a bar where they are many. */
function pips(element, row) {
  const n = row.cores <= PIPS ? row.cores : 0;
  element.classList.toggle("bar", n === 0);
  while (element.childElementCount > n) element.lastElementChild.remove();
  while (element.childElementCount < n) element.append(h("i"));
  [...element.children].forEach((pip, i) => pip.classList.toggle("on", i < row.cores_used));
}

function fill(row) {
  return row.cores ? Math.round((100 * Math.min(row.cores_used, row.cores)) / row.cores) : 0;
}

/** The number that a name ends with, or its last letters. */
function tail(name) {
  return /\d{1,4}$/.exec(name)?.[0] ?? name.slice(-4);
}

/** One host in words. */
export function told(row, state) {
  const whose = row.department ? `held by ${row.department}` : "";
  const lent = row.lent ? `lent by ${row.owner}` : "";
  const units = (row.units ?? []).length ? `runs ${named(row.units, 6)}` : "";
  const used = amounts(row).map((amount) => `${amount} in use`);
  const words = [whose, state === "held" ? "" : state, lent, ...used, units];
  return `${row.host}: ${words.filter(Boolean).join(", ")}`;
}

function tipOf(row, model) {
  const state = stateOf(row);
  const since = seconds(row.since);
  const why = row.quarantine ?? apartOf(row) ?? row.lost;
  return [
    h("strong", null, row.host),
    h(
      "span",
      { class: `tag ${model.own(row.department)}` },
      row.department ?? "free",
      state === "held" || state === "free" ? "" : `, ${state}`,
    ),
    h("span", null, amounts(row).join(", ")),
    (row.units ?? []).length > 0 && h("span", null, `runs ${named(row.units, 8)}`),
    row.lent && h("span", null, `lent by ${row.owner}`),
    since !== null && h("span", { class: "soft" }, `so for ${duration(now() - since)}`),
    typeof why === "string" && why !== "" && h("span", { class: "soft" }, why),
  ].filter(Boolean);
}

/** @param {string[]} names @param {number} most */
function named(names, most) {
  const more = names.length > most ? ` and ${names.length - most} more` : "";
  return names.slice(0, most).join(", ") + more;
}

/** Beside what it is about, inside the window. */
function place(tip, box) {
  const { offsetWidth: width, offsetHeight: height } = tip;
  const below = box.bottom + 8 + height < window.innerHeight;
  const left = Math.min(Math.max(8, box.left + box.width / 2 - width / 2), window.innerWidth - width - 8);
  tip.style.left = `${Math.max(8, left)}px`;
  tip.style.top = `${below ? box.bottom + 8 : Math.max(8, box.top - height - 8)}px`;
}
