// @ts-check
// The stream of decisions, newest first.
//
// Rules
//   1. While a user reads (the pointer is over the list, the focus in it, or it is scrolled) nothing moves: what comes is
//      counted on a button that brings it.
//   2. What is decided of many at once is one line (bursts.js), which opens. At most SHOWN lines are in the document; the model
//      keeps some more for the filter.
//   3. A colour says whose a decision is, and where its sentence does not, so does a word.
//   4. Where the server could not say all that was missed, a line says so.

import { bursts } from "./bursts.js";
import { el, h, keyed, say } from "./dom.js";
import { clock, count, number, whole } from "./format.js";
import { told } from "./links.js";

const SHOWN = 120;
const FRESH = 3; // how many new lines are shown as new: more would be a flicker, and wasted work
const NAMED = 4; // of the others of a line

export class Decisions {
  /** @param {import("./model.js").Model} model */
  constructor(model) {
    this.model = model;
    this.list = el("stream");
    this.held = el("held");
    this.filter = el("decisions-of");
    this.over = false;
    this.scrolled = false; // asked of the document in each frame it would cost a layout
    /** @type {string} */ this.newest = "";
    this.list.addEventListener("pointerenter", (event) => (this.over = event.pointerType !== "touch"));
    this.list.addEventListener("pointerleave", () => this.left());
    this.list.addEventListener("focusout", () => queueMicrotask(() => this.draw()));
    this.list.addEventListener("scroll", () => this.scroll(), { passive: true });
    this.held.addEventListener("click", () => this.bring());
    this.filter.addEventListener("change", () => this.draw(true));
  }

  left() {
    this.over = false;
    this.draw();
  }

  scroll() {
    this.scrolled = this.list.scrollTop > 0;
    if (!this.scrolled) this.draw();
  }

  bring() {
    this.list.scrollTop = 0;
    this.scrolled = false;
    this.draw(true);
    if (document.activeElement === this.held || document.activeElement === document.body) this.list.focus();
  }

  reading() {
    return this.over || this.list.contains(document.activeElement) || this.scrolled;
  }

  /** @param {boolean} [anyway] also while a user reads */
  draw(anyway = false) {
    this.options();
    const of = this.filter.value;
    const fitting = this.model.decisions.filter((one) => of === "" || one.gap || one.department === of);
    const known = fitting.findIndex((one) => one.id === this.newest);
    if (!anyway && this.list.childElementCount && this.reading() && known !== 0) {
      const n = known < 0 ? fitting.length : known;
      say(this.held, `${count(n, "new decision")}: show`);
      this.held.hidden = n === 0;
      return;
    }
    this.held.hidden = true;
    this.newest = fitting[0]?.id ?? "";
    /** @type {Element[]} */ const made = [];
    const fresh = this.list.childElementCount > 0;
    keyed(
      this.list,
      bursts(fitting).slice(0, SHOWN),
      (one) => one.key,
      (one) => {
        made.push(line(one));
        return made[made.length - 1];
      },
      (item, one) => this.change(item, one),
    );
    if (fresh && made.length <= FRESH) for (const item of made) item.classList.add("fresh");
    this.list.classList.toggle("none", fitting.length === 0);
  }

  /** @param {any} item @param {import("./bursts.js").Burst} one */
  change(item, one) {
    if (one.newest.gap || item.phoenixNewest === one.newest.id) return;
    item.phoenixNewest = one.newest.id;
    item.dataset.ids = one.ids.join(" ");
    item.querySelector(".swatch").className = `swatch ${this.model.own(one.newest.department)}`;
    const words = item.querySelector(".words");
    words.replaceChildren(...this.words(one.newest));
    if (!one.others.length) return;
    const more = item.querySelector("details");
    say(more.firstElementChild, othersOf(one.others));
    const list = () =>
      more.lastElementChild.replaceChildren(...one.others.map((other) => h("li", null, ...this.words(other))));
    more.ontoggle = () => more.open && list();
    if (more.open) list();
  }

  words(one) {
    const text = String(one.sentence ?? one.kind);
    const nodes = told(text, this.model, one);
    const whose = this.model.departments.has(one.department) && !text.split(/[^\w-]+/).includes(one.department);
    return whose ? [...nodes, " ", h("span", { class: "soft" }, one.department)] : nodes;
  }

  options() {
    const names = this.model.listed().map((row) => row.department);
    keyed(
      this.filter,
      ["", ...names],
      (name) => name,
      (name) => h("option", { value: name }, name || "all departments"),
    );
  }
}

/** @param {import("./bursts.js").Burst} one */
function line(one) {
  const { newest } = one;
  if (newest.gap)
    return h(
      "li",
      { class: "gap", "data-ids": "gap" },
      "Decisions are missing here: the connection was down for longer than the monitor keeps them. ",
      h("code", null, "phoenix events"),
      " has them.",
    );
  return h(
    "li",
    { "data-kind": newest.kind },
    h("time", { datetime: new Date(one.at * 1000).toISOString(), title: whole(one.at) }, clock(one.at)),
    h("span", { class: "swatch", title: newest.department ?? "site", "aria-hidden": "true" }),
    h("div", null, h("span", { class: "words" }), one.others.length > 0 && h("details", null, h("summary"), h("ul"))),
  );
}

/** @param {any[]} others */
function othersOf(others) {
  const names = [...new Set(others.map((one) => one.unit ?? one.job ?? one.host).filter(Boolean))];
  if (!names.length) return `and ${number(others.length)} more like it`;
  const more = names.length > NAMED ? " …" : "";
  return `and ${number(others.length)} more: ${names.slice(0, NAMED).join(", ")}${more}`;
}
