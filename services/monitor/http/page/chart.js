// @ts-check
// Hosts by owner over time as stacked areas, and the web load on them as lines with an axis of their own on the right.
//
// Rules
//   1. Areas are steps: a host is held or not, there is nothing in between. A load is a line; where it was not reported, a gap.
//   2. Lines are drawn in the colour of the text with a rim of the surface's, so that they are seen on every area; the second
//      department's is dashed, the third's dotted; what is wanted is thinner than what serves.
//   3. A band that is high enough where it ends has its name there: colours alone would not tell every reader whose it is.
//   4. The pointer, or the arrow keys when the chart has the focus, move a line whose values are said in words; a table with at
//      most ROWS moments says the same to screen readers.
//   5. The axis begins at the range's beginning or with the first point, if the cloud is younger.

import { ask, now } from "./session.js";
import { el, h, keyed, s, say } from "./dom.js";
import { clock, number, percent, tick, whole } from "./format.js";
import { append, bands, before, seriesOf, ticks, times, upTo } from "./series.js";

const RANGES = [
  ["15 min", 900],
  ["1 h", 3600],
  ["6 h", 21_600],
  ["24 h", 86_400],
  ["14 d", 1_209_600],
];
const METRICS = [
  ["requests/s", "requests_per_s"],
  ["utilisation", "utilisation"],
  ["instances", "instances"],
];
const WORDS = {
  requests_per_s: "requests/s",
  utilisation: "utilisation",
  wanted: "instances wanted",
  serving: "instances serving",
};
const LEAST = { requests_per_s: 10, utilisation: 1, instances: 4 }; // the axis shows so much, however little there is
const POINTS = 240;
const EDGE_S = 5; // inside the range: at its very edge the answer would be the next coarser one
const ROWS = 12;
const TABLE_MS = 60_000; // the table stays as it is for this long: a user may be reading it
const DASH = ["none", "7 4", "2 4"];
const LABELLED = 18; // px: a band of this height has room for its name
const TOP = 14;
const BOTTOM = 26;
const LEFT = 46;
const RIGHT = 48;

export class Chart {
  /** @param {import("./model.js").Model} model */
  constructor(model) {
    this.model = model;
    this.range_s = 3600;
    this.metric = "requests_per_s";
    /** @type {import("./series.js").Series | null} what the monitor has told */ this.kept = null;
    /** @type {import("./series.js").Series | null} what is drawn: with a point of now */ this.series = null;
    /** @type {number | null} the moment that is shown */ this.moment = null;
    this.tabled = 0;
    this.box = el("chart");
    this.size = { width: 0, height: 0 }; // asked of the document in each frame it would cost a layout
    this.tip = h("div", { class: "values", hidden: true });
    this.said = h("p", { role: "status" });
    this.table = h("table");
    this.svg = /** @type {any} */ (s("svg", { tabindex: "0", role: "img", "aria-label": "Hosts by owner over time" }));
    this.box.append(this.svg, this.tip, h("div", { class: "unseen" }, this.said, this.table));
    this.svg.addEventListener("pointermove", (event) => this.pointed(event));
    this.svg.addEventListener("pointerleave", () => this.tell(-1));
    this.svg.addEventListener("blur", () => this.tell(-1));
    this.svg.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(([seen]) => {
      this.size = seen.contentRect;
      this.draw();
    }).observe(this.box);
    this.buttons();
  }

  buttons() {
    segments(
      el("range"),
      RANGES,
      () => this.range_s,
      (range_s) => {
        this.range_s = range_s;
        this.buttons();
        this.load();
      },
    );
    segments(
      el("metric"),
      METRICS,
      () => this.metric,
      (metric) => {
        this.metric = metric;
        this.buttons();
        this.draw();
      },
    );
  }

  /** Ask for the whole range. The answer of an earlier question is dropped. */
  async load() {
    const range_s = this.range_s;
    try {
      const since = new Date((Math.ceil(now() - range_s) + EDGE_S) * 1000).toISOString();
      const answer = await ask(`/v1/timeline?since=${since}&points=${POINTS}`);
      if (range_s !== this.range_s) return;
      this.kept = seriesOf(answer);
      this.moment = null;
      this.tabled = 0;
      this.draw();
    } catch (error) {
      if (this.kept === null) this.none(error instanceof Error ? error.message : "The timeline cannot be read.");
    }
  }

  forget() {
    this.kept = this.series = null;
    this.tell(-1);
    this.none("");
    keyed(el("chart-key"), [], String, () => h("span"));
    this.table.replaceChildren();
    this.tip.replaceChildren();
    this.tabled = 0;
  }

  /** @param {any} point */
  point(point) {
    if (this.kept === null) return void this.load(); // it failed, or has not been answered
    append(this.kept, point, this.range_s);
  }

  none(words) {
    this.svg.replaceChildren(s("text", { class: "tick", x: 12, y: 30 }, words));
  }

  draw() {
    const { width } = this.size;
    if (this.kept === null || width === 0) return;
    if (this.kept.at.length === 0) return this.none("Nothing has happened yet.");
    const series = upTo(this.kept, now(), this.model.hosts, this.model.departments);
    this.series = series;
    this.scale(series, width);
    const parts = [...this.areas(series), ...this.lines(series), ...this.names(series)];
    this.svg.replaceChildren(...this.axes(), ...parts, this.cross());
    this.key_(series);
    this.tabulate(series);
    this.tell(this.moment === null ? -1 : this.under(this.moment));
  }

  scale(series, width) {
    const { height } = this.size;
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const to = Math.max(now(), series.at[series.at.length - 1]);
    const from = Math.min(Math.max(to - this.range_s, series.at[0] - series.step_s), to - 30);
    const sums = series.at.map((_, i) =>
      [...series.owners.values()].reduce((sum, counts) => sum + (counts[i] ?? 0), 0),
    );
    this.hosts = ticks(Math.max(...sums, 1), 4, true);
    this.loads = ticks(this.most(series), 4, this.metric !== "utilisation");
    const [high, right, bottom] = [height - TOP - BOTTOM, width - RIGHT, height - BOTTOM];
    this.frame = { width, height, right, bottom, from, to };
    this.x = (at) => LEFT + ((right - LEFT) * (Math.min(Math.max(at, from), to) - from)) / (to - from);
    this.y = (n) => bottom - (high * n) / this.hosts[this.hosts.length - 1];
    this.z = (n) => bottom - (high * n) / this.loads[this.loads.length - 1];
  }

  /** The lines that this metric has. A department's are of one dash; what is wanted is thinner than what serves. */
  told(series) {
    const names = this.metric === "instances" ? ["wanted", "serving"] : [this.metric];
    const slot = (/** @type {string} */ department) => this.model.slots.get(department) ?? 99;
    const has = (of, name) => of[name]?.some((n) => n !== null);
    return [...series.load]
      .filter(([, of]) => names.some((name) => has(of, name)))
      .sort((a, b) => slot(a[0]) - slot(b[0]))
      .flatMap(([department, of], i) =>
        names
          .filter((name) => has(of, name))
          .map((name) => ({
            department,
            name,
            values: of[name],
            dash: DASH[Math.min(i, DASH.length - 1)],
            thin: name === "wanted" ? " thin" : "",
          })),
      );
  }

  most(series) {
    const all = this.told(series).flatMap((line) => line.values.filter((n) => n !== null));
    return Math.max(LEAST[this.metric], ...all.map(Number));
  }

  value(n) {
    return n === null || n === undefined ? "–" : this.metric === "utilisation" ? percent(n) : number(n);
  }

  axes() {
    const { right, bottom, from, to, width } = this.frame;
    const across = this.hosts.map((n) =>
      s("line", { class: "rule", x1: LEFT, x2: right, y1: this.y(n), y2: this.y(n) }),
    );
    const hosts = this.hosts.map((n) =>
      s("text", { class: "tick", x: LEFT - 8, y: this.y(n) + 4, "text-anchor": "end" }, number(n)),
    );
    const loads = this.loads.map((n) => s("text", { class: "tick", x: right + 8, y: this.z(n) + 4 }, this.value(n)));
    const moments = times(from, to, Math.max(2, Math.floor(width / 130))).filter(
      (at) => this.x(at) > LEFT + 14 && this.x(at) < right - 14,
    );
    const clocks = moments.map((at) =>
      s(
        "text",
        { class: "tick", x: this.x(at), y: bottom + 18, "text-anchor": "middle" },
        to - from < 300 ? clock(at) : tick(at, to - from),
      ),
    );
    return [...across, ...hosts, ...loads, ...clocks];
  }

  areas(series) {
    const base = series.at.map(() => 0);
    const hatch = s(
      "pattern",
      { id: "hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
      s("rect", { width: 2.5, height: 6, class: "stripe" }),
    );
    const found = bands(series, this.model.slots).map((name) => {
      const counts = series.owners.get(name) ?? [];
      const lower = [...base];
      counts.forEach((n, i) => (base[i] += n ?? 0));
      return s("path", {
        class: `area ${this.model.own(name)} ${name.startsWith("(") ? name.slice(1, -1) : "held"}`,
        d: this.band(series, lower, base),
      });
    });
    return [s("defs", null, hatch), ...found];
  }

  /** Rule 3. */
  names(series) {
    const last = series.at.length - 1;
    let below = 0;
    return bands(series, this.model.slots).flatMap((name) => {
      const middle = this.y(below + (series.owners.get(name)?.[last] ?? 0) / 2);
      const high = 2 * (this.y(below) - middle);
      below += series.owners.get(name)?.[last] ?? 0;
      const words = name.replace(/[()]/g, "");
      const at = { class: "whose", x: this.frame.right - 8, y: middle + 4, "text-anchor": "end" };
      return high < LABELLED ? [] : [s("text", at, words.length > 24 ? `${words.slice(0, 23)}…` : words)];
    });
  }

  /** Rule 1: forward along the upper steps, back along the lower ones. */
  band(series, lower, upper) {
    const { at } = series;
    const step = (of) =>
      at.map((t, i) => ({ from: this.x(i ? at[i - 1] : t - series.step_s), to: this.x(t), y: this.y(of[i]) }));
    const there = step(upper).map((p) => `L${p.from.toFixed(1)} ${p.y.toFixed(1)}H${p.to.toFixed(1)}`);
    const back = step(lower).map((p) => `L${p.to.toFixed(1)} ${p.y.toFixed(1)}H${p.from.toFixed(1)}`);
    return `M${there.join("").slice(1)}${back.reverse().join("")}Z`;
  }

  lines(series) {
    return this.told(series).flatMap((line) => {
      let d = "";
      let pen = "M";
      line.values.forEach((n, i) => {
        if (n === null || series.at[i] < this.frame.from) return (pen = n === null ? "M" : pen);
        d += `${pen}${this.x(series.at[i]).toFixed(1)} ${this.z(n).toFixed(1)}${pen === "M" ? "h0" : ""}`; // one alone: a dot
        pen = "L";
      });
      return [s("path", { class: "load rim", d }), s("path", { class: `load${line.thin}`, d, "stroke-dasharray": line.dash })];
    });
  }

  cross() {
    return s("line", { class: "cross", y1: TOP, y2: this.frame.bottom, x1: -9, x2: -9 });
  }

  key_(series) {
    const lines = this.told(series);
    const areas = bands(series, this.model.slots).filter((name) => series.owners.get(name)?.some((n) => n > 0));
    const items = [
      ...areas.map((name) => ({ key: name, own: name, text: name.replace(/[()]/g, "") })),
      ...lines.map((line) => ({
        key: `${line.department} ${line.name}`,
        line,
        text: `${line.department}: ${WORDS[line.name]} (right)`,
      })),
    ];
    if (!lines.length) items.push({ key: "none", line: null, text: "no load is reported" });
    keyed(
      el("chart-key"),
      items,
      (one) => one.key,
      (one) => {
        const sign =
          "own" in one
            ? h("span", {
                class: `swatch ${this.model.own(one.own)} ${one.own.startsWith("(") ? one.own.slice(1, -1) : ""}`,
                "aria-hidden": "true",
              })
            : one.line !== null
              ? stroke(one.line)
              : null;
        return h("span", { class: "item" }, sign, one.text);
      },
    );
  }

  tabulate(series) {
    if (performance.now() < this.tabled) return;
    this.tabled = performance.now() + TABLE_MS;
    const names = bands(series, this.model.slots);
    const lines = this.told(series);
    const every = Math.max(1, Math.ceil(series.at.length / ROWS));
    const rows = series.at.map((_, i) => i).filter((i) => i % every === 0 || i === series.at.length - 1);
    this.table.replaceChildren(
      h("caption", null, "Hosts by owner, and web load, over time"),
      h(
        "thead",
        null,
        h(
          "tr",
          null,
          ...["Time", ...names, ...lines.map((line) => `${line.department}: ${WORDS[line.name]}`)].map((name) =>
            h("th", { scope: "col" }, name),
          ),
        ),
      ),
      h(
        "tbody",
        null,
        ...rows.map((i) =>
          h(
            "tr",
            null,
            h("th", { scope: "row" }, whole(series.at[i])),
            ...names.map((name) => h("td", null, number(series.owners.get(name)?.[i] ?? 0))),
            ...lines.map((line) => h("td", null, this.value(line.values[i]))),
          ),
        ),
      ),
    );
  }

  /** @param {PointerEvent} event */
  pointed(event) {
    if (this.series === null || !this.frame) return;
    const box = this.svg.getBoundingClientRect();
    const { from, to, right } = this.frame;
    const at = from + ((event.clientX - box.left - LEFT) / (right - LEFT)) * (to - from);
    this.tell(at < from || at > to ? -1 : this.under(at));
  }

  /** The index of the point whose step has this moment. */
  under(moment) {
    const { at } = /** @type {import("./series.js").Series} */ (this.series);
    const i = before(at, moment);
    return at[i] === moment ? i : Math.min(i + 1, at.length - 1);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (this.series === null) return;
    const last = this.series.at.length - 1;
    const from = this.moment === null ? last : this.under(this.moment);
    const step = event.shiftKey ? 10 : 1;
    const moves = { ArrowLeft: from - step, ArrowRight: from + step, Home: 0, End: last };
    if (moves[event.key] === undefined) return;
    event.preventDefault();
    this.tell(Math.min(last, Math.max(0, moves[event.key])));
    say(this.said, this.svg.getAttribute("aria-label") ?? "");
  }

  /** Rule 4. @param {number} i */
  tell(i) {
    const { series } = this;
    this.moment = i < 0 || series === null ? null : series.at[i];
    const cross = this.svg.querySelector(".cross");
    this.tip.hidden = i < 0 || series === null;
    if (series === null || cross === null) return;
    const x = i < 0 ? -9 : this.x(series.at[i]);
    cross.setAttribute("x1", x);
    cross.setAttribute("x2", x);
    if (i < 0) return;
    const names = bands(series, this.model.slots).filter((name) => series.owners.get(name)?.[i]);
    const values = names
      .reverse()
      .map((name) => [
        h("span", { class: `swatch ${this.model.own(name)}` }),
        name.replace(/[()]/g, ""),
        number(series.owners.get(name)?.[i] ?? 0),
      ]);
    const loads = this.told(series).map((line) => [
      stroke(line),
      `${line.department}: ${WORDS[line.name]}`,
      this.value(line.values[i]),
    ]);
    this.tip.replaceChildren(
      h("strong", null, whole(series.at[i])),
      ...[...values, ...loads].map(([sign, name, n]) =>
        h("span", { class: "line" }, sign, h("span", null, name), h("b", null, n)),
      ),
    );
    this.svg.setAttribute(
      "aria-label",
      `${whole(series.at[i])}: ${[...values, ...loads].map(([, name, n]) => `${name} ${n}`).join(", ")}`,
    );
    const wide = this.tip.offsetWidth;
    this.tip.style.left = `${x + 14 + wide < this.frame.width ? x + 14 : Math.max(0, x - wide - 14)}px`;
  }
}

function stroke({ dash, thin }) {
  return s(
    "svg",
    { class: `sample${thin}`, viewBox: "0 0 22 8", "aria-hidden": "true" },
    s("line", { x1: 1, x2: 21, y1: 4, y2: 4, "stroke-dasharray": dash }),
  );
}

function segments(parent, all, chosen, choose) {
  keyed(
    parent,
    all,
    (one) => one[0],
    (one) => h("button", { type: "button", onclick: () => choose(one[1]) }, one[0]),
    (button, one) => button.setAttribute("aria-pressed", String(one[1] === chosen())),
  );
  say(parent.firstElementChild, all[0][0]);
}
