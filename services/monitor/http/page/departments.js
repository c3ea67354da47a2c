// @ts-check
// A card a department: what it holds, may keep and wants, and how its work stands.
// The bar has the cloud's hosts as its length, so that cards compare: filled is held, the line is the quota, the triangle what
// is wanted.

import { el, h, keyed, s, say } from "./dom.js";
import { count, duration, number, percent, seconds, sentence } from "./format.js";
import { link } from "./links.js";
import { now } from "./session.js";
import { waiting } from "./summary.js";

const OF_JOURNAL = new Set(["not_ready", "signal_missing"]); // told above by the journal, which is never behind

/** @param {import("./model.js").Model} model */
export function departments(model) {
  keyed(
    el("cards"),
    model.listed(),
    (row) => row.department,
    (row) => card(row, model),
    (item, row) => {
      if (item.phoenixRow === row && item.phoenixHosts === model.hosts.size) return;
      item.phoenixRow = row;
      item.phoenixHosts = model.hosts.size;
      bar(item.querySelector(".meter"), row, model.hosts.size);
      say(item.querySelector(".kind"), row.kind ?? "");
      keyed(
        item.querySelector("dl"),
        facts(row),
        (one) => one[0],
        pair,
        (pairing, one) => {
          say(pairing.children[1], one[1]);
          pairing.classList.toggle("bad", one[2] === true);
        },
      );
      say(item.querySelector(".why"), remarks(row).join(" "));
    },
  );
}

function card(row, model) {
  const title = h(
    "h3",
    null,
    h("span", { class: `swatch ${model.own(row.department)}`, "aria-hidden": "true" }),
    link("department", row.department),
  );
  return h(
    "article",
    { class: `card ${model.own(row.department)}` },
    h("header", null, title, h("span", { class: "kind" })),
    h("div", { class: "meter" }),
    h("dl"),
    h("p", { class: "why" }),
  );
}

function pair(one) {
  return h("div", null, h("dt", null, one[0]), h("dd"));
}

/** [name, value, whether it is bad] */
function facts(row) {
  /** @type {[string, string, boolean?][]} */
  const found = [
    ["held", number(row.hosts_held)],
    ["may keep", number(row.hosts_quota)],
    ["wants", number(row.hosts_demanded)],
  ];
  if (row.kind === "web") {
    const wanted = row.instances_wanted ?? 0;
    found.push([
      "serving",
      `${number(row.instances_serving ?? 0)} of ${number(wanted)}`,
      (row.instances_serving ?? 0) < wanted,
    ]);
    found.push(["load", percent(row.utilisation)]);
    found.push([
      "requests",
      row.requests_per_s === null || row.requests_per_s === undefined ? "–" : `${number(row.requests_per_s)}/s`,
    ]);
  } else {
    found.push(["running", number(row.jobs?.running ?? 0)], ["waiting", number(waiting(row))]);
    const ages = Object.values(row.waiting ?? {}).map(
      (one) => now() - (seconds(one.since) ?? now() - (one.oldest_s ?? 0)),
    );
    found.push(["oldest", ages.length ? duration(Math.max(...ages)) : "–"]);
  }
  return found;
}

/** What else is to be known of it, in sentences. */
function remarks(row) {
  const found = [];
  const silent = seconds(row.signal_missing_since);
  if (silent !== null) found.push(`No signal for ${duration(now() - silent)}: the number of instances is held.`);
  const ill = seconds(row.not_ready_since);
  if (ill !== null) {
    const one = row.instances_not_ready === 1;
    found.push(
      `${count(row.instances_not_ready, "instance")} ${one ? "is" : "are"} not ready for ${duration(now() - ill)}: ` +
        `${row.not_ready_answer}.`,
    );
  }
  for (const one of row.troubles ?? []) if (!OF_JOURNAL.has(one.reason.code)) found.push(sentence(one.sentence));
  if (row.scale && row.scale.exact !== null) found.push(`Scaled by hand: ${row.scale.exact}.`);
  else if (row.scale && row.scale.minimum !== null) found.push(`Scaled by hand: at least ${row.scale.minimum}.`);
  if (row.release?.release) {
    const others = row.release.others ? `, ${number(row.release.others)} on others` : "";
    found.push(
      `Release ${row.release.release} is ${row.release.state ?? "wanted"}: ${number(row.release.instances)} on it${others}.`,
    );
  }
  const share = [
    row.guarantee ? `guarantee ${row.guarantee}` : "",
    row.maximum ? `maximum ${row.maximum}` : "",
    row.priority ? `priority ${row.priority}` : "",
    row.weight && row.weight !== 1 ? `weight ${row.weight}` : "",
  ].filter(Boolean);
  if (share.length) found.push(`Its terms: ${share.join(", ")}.`);
  if (row.sentence) found.push(row.sentence);
  return found;
}

function bar(element, row, hosts) {
  const most = Math.max(hosts, row.hosts_demanded, row.hosts_held, 1);
  const share = (/** @type {number} */ n) => `${(100 * Math.min(n, most)) / most}%`;
  const words = `${row.hosts_held} held, may keep ${row.hosts_quota}, wants ${row.hosts_demanded}, of ${hosts} hosts`;
  element.replaceChildren(
    /** @type {any} */ (
      s(
        "svg",
        { role: "img", "aria-label": words },
        s("rect", { class: "rail", y: 6, width: "100%", height: 8, rx: 4 }),
        s("rect", { class: "held", y: 6, width: share(row.hosts_held), height: 8, rx: 4 }),
        s("svg", { x: share(row.hosts_quota) }, s("rect", { class: "quota", x: -1, y: 2, width: 2, height: 16 })),
        s("svg", { x: share(row.hosts_demanded) }, s("path", { class: "wants", d: "M-4 0h8l-4 6z" })),
      )
    ),
  );
}
