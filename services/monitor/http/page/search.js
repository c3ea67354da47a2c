// @ts-check
// The field that goes to a job, a host or a department. "/" gives it the focus.
// It finds by what names contain, among what the page knows; a job's number need not be known here: the monitor may know it.

import { el, h } from "./dom.js";
import { byName } from "./format.js";
import { address } from "./links.js";

const MOST = 8;
const UNIT = /^\d{1,12}(_\d{1,9})?$/;

/** @param {string} text @param {import("./model.js").Model} model @returns {{kind: string, name: string, note: string}[]} */
export function found(text, model) {
  const sought = text
    .trim()
    .toLowerCase()
    .replace(/^job\s+/, "");
  if (!sought) return [];
  const all = [];
  for (const name of model.departments.keys()) all.push({ kind: "department", name, note: "department" });
  for (const name of model.order)
    all.push({ kind: "host", name, note: `host, ${model.hosts.get(name)?.department ?? "free"}` });
  for (const rows of model.queues.values())
    for (const row of rows) all.push({ kind: "job", name: row.unit, note: `${row.state}, ${row.user}, ${row.name}` });
  const fitting = all.filter(
    (one) => one.name.toLowerCase().includes(sought) || (one.kind === "job" && one.note.toLowerCase().includes(sought)),
  );
  const rank = (one) => (one.name.toLowerCase() === sought ? 0 : one.name.toLowerCase().startsWith(sought) ? 1 : 2);
  fitting.sort((a, b) => rank(a) - rank(b) || byName(a.name, b.name));
  const best = fitting.slice(0, MOST);
  if (UNIT.test(sought) && best[0]?.name !== sought)
    best.unshift({ kind: "job", name: sought, note: "job with this number" });
  const dot = sought.lastIndexOf(".");
  if (dot > 0 && model.departments.has(sought.slice(0, dot)))
    best.unshift({ kind: "instance", name: sought, note: "instance" });
  return best.slice(0, MOST);
}

/** @param {import("./model.js").Model} model */
export function search(model) {
  const field = /** @type {HTMLInputElement} */ (el("jump"));
  const list = el("jump-list");
  let options = [];
  let at = -1;

  const show = () => {
    list.replaceChildren(
      ...options.map((one, i) =>
        h(
          "li",
          {
            id: `jump-${i}`,
            role: "option",
            "aria-selected": String(i === at),
            onpointerdown: (event) => go(event, one),
          },
          h("b", null, one.name),
          h("span", { class: "soft" }, one.note),
        ),
      ),
    );
    list.hidden = options.length === 0;
    field.setAttribute("aria-expanded", String(options.length > 0));
    if (at >= 0) field.setAttribute("aria-activedescendant", `jump-${at}`);
    else field.removeAttribute("aria-activedescendant");
  };
  const look = () => {
    options = found(field.value, model);
    at = options.length ? 0 : -1;
    show();
  };
  const close = () => {
    options = [];
    at = -1;
    show();
  };
  const go = (event, one) => {
    event.preventDefault();
    field.value = "";
    close();
    location.hash = address(one.kind, one.name);
  };

  field.addEventListener("input", look);
  field.addEventListener("focus", look);
  field.addEventListener("blur", close);
  field.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && options.length) {
      event.preventDefault();
      at = (at + step + options.length) % options.length;
      show();
    } else if (event.key === "Escape" && (options.length || field.value)) {
      event.preventDefault();
      event.stopPropagation();
      field.value = "";
      close();
    }
  });
  el("search").addEventListener("submit", (event) => {
    event.preventDefault();
    const one = options[Math.max(at, 0)];
    if (one) go(event, one);
    else field.setAttribute("aria-invalid", String(field.value.trim() !== ""));
  });
  document.addEventListener("keydown", (event) => {
    const inField = event.target instanceof Element && event.target.closest("input, select, textarea");
    if (event.key !== "/" || inField || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    field.focus();
  });
}
