// @ts-check
// The stream of decisions, newest first.
//
// Rules
//   1. While somebody reads (the pointer is over the list, the focus in it, or it is scrolled) nothing moves: what comes is
//      counted on a button that brings it.
//   2. At most SHOWN are in the document; the model keeps some more for the filter.
//   3. Where the server could not say all that was missed, a line says so.

import { el, h, keyed, say } from "./dom.js";
import { clock, count, whole } from "./format.js";
import { told } from "./links.js";

const SHOWN = 120;

export class Decisions {
  /** @param {import("./model.js").Model} model */
  constructor(model) {
    this.model = model;
    this.list = el("stream");
    this.held = el("held");
    this.filter = el("decisions-of");
    this.over = false;
    /** @type {string} */ this.newest = "";
    this.list.addEventListener("pointerenter", (event) => (this.over = event.pointerType !== "touch"));
    this.list.addEventListener("pointerleave", () => this.left());
    this.list.addEventListener("focusout", () => queueMicrotask(() => this.draw()));
    this.list.addEventListener("scroll", () => this.list.scrollTop === 0 && this.draw(), { passive: true });
    this.held.addEventListener("click", () => this.bring());
    this.filter.addEventListener("change", () => this.draw(true));
  }

  left() {
    this.over = false;
    this.draw();
  }

  bring() {
    this.list.scrollTop = 0;
    this.draw(true);
    if (document.activeElement === this.held || document.activeElement === document.body) this.list.focus();
  }

  reading() {
    return this.over || this.list.contains(document.activeElement) || this.list.scrollTop > 0;
  }

  /** @param {boolean} [anyway] also while somebody reads */
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
    keyed(
      this.list,
      fitting.slice(0, SHOWN),
      (one) => one.id,
      (one) => this.line(one),
    );
    this.list.classList.toggle("none", fitting.length === 0);
  }

  line(one) {
    if (one.gap)
      return h(
        "li",
        { class: "gap" },
        "Here decisions are missing: the connection was away for longer than the monitor remembers. ",
        h("code", null, "phoenix events"),
        " has them.",
      );
    const time = h("time", { datetime: new Date(one.at * 1000).toISOString(), title: whole(one.at) }, clock(one.at));
    const dot = h("span", {
      class: `swatch ${this.model.own(one.department)}`,
      title: one.department ?? "site",
      "aria-hidden": "true",
    });
    return h(
      "li",
      { "data-id": one.id, "data-kind": one.kind },
      time,
      dot,
      h("span", { class: "words" }, ...told(one.sentence ?? one.kind, this.model, one)),
    );
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
