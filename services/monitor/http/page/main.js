// @ts-check
// The page: who logs in, what comes, what is drawn when.
//
// Theory of operation
//   One model, folded from the stream; views that draw it. Events mark parts as changed; the next frame draws each changed part
//   once, however many events came. A hidden tab has no frames: it folds on and draws when it is seen again.
//
// Rule
//   The cookie is of the browser, a page of a tab. When another tab has logged another user in, the server ends this one's
//   stream, and the next one is that person's: with each picture the page asks whose it is, and starts over if need be.

import { Chart } from "./chart.js";
import { Decisions } from "./decisions.js";
import { departments } from "./departments.js";
import { el, say } from "./dom.js";
import { clock } from "./format.js";
import { Hosts } from "./hosts.js";
import { Live } from "./live.js";
import { Model } from "./model.js";
import { Queue } from "./queue.js";
import { search } from "./search.js";
import { enter, known, leave, now, Refused } from "./session.js";
import { Story } from "./story.js";
import { summary } from "./summary.js";
import { theme } from "./theme.js";

const TICK_S = 5; // ages in the page are right to this
const AWAY = { 0: "The monitor does not answer. The page tries again.", 401: "" };

const model = new Model();
const hosts = new Hosts(model);
const chart = new Chart(model);
const queue = new Queue(model);
const decisions = new Decisions(model);
const story = new Story(model);
const views = {
  head: () => summary(model),
  hosts: () => hosts.draw(),
  chart: () => chart.draw(),
  departments: () => departments(model),
  queue: () => queue.draw(),
  decisions: () => decisions.draw(),
};

/** @type {Set<string>} */ const changed = new Set();
let framed = false;
let lostAt = 0;

function draw() {
  framed = false;
  for (const [part, view] of Object.entries(views)) if (changed.has(part)) view();
  changed.clear();
  if (!document.documentElement.dataset.painted)
    document.documentElement.dataset.painted = String(Math.round(performance.now()));
}

/** @param {string[]} parts */
function soon(parts) {
  for (const part of parts) changed.add(part);
  if (framed || changed.size === 0) return;
  framed = true;
  requestAnimationFrame(draw);
}

const live = new Live({
  event(kind, data) {
    if (kind === "point") {
      chart.point(data);
      return soon(["chart"]);
    }
    const parts = model.take(kind, data);
    soon(parts.includes("hosts") ? [...parts, "chart"] : parts);
    if (kind === "decisions") story.concerned(data.decisions ?? data);
    if (kind === "picture") {
      say(el("cloud"), model.cloud || "Phoenix Cloud");
      document.title = model.cloud ? `${model.cloud} – Phoenix Cloud` : "Phoenix Cloud";
      chart.load();
      same();
    }
  },
  state(state) {
    const box = el("link");
    if (state === "lost" && box.dataset.state !== "lost") lostAt = now();
    if (box.dataset.state === state) return;
    box.dataset.state = state;
    say(
      el("link-words"),
      state === "live" ? "live" : state === "lost" ? `reconnecting since ${clock(lostAt)}` : "connecting",
    );
  },
  expired() {
    login("Your session has ended: log in again.");
  },
});

/** @param {{user: string, role: string, department?: string | null, cloud?: string}} who */
function begin(who) {
  el("login").hidden = true;
  el("board").hidden = false;
  el("search").hidden = false;
  el("leave").hidden = false;
  el("token").value = "";
  say(el("who"), who.role === "operator" ? `${who.user}, operator` : `${who.user} of ${who.department}`);
  story.who = who;
  live.open();
  story.follow();
}

/** The rule. */
async function same() {
  const who = await known().catch(() => null); // whatever is wrong, the stream notices it
  if (who === null || el("board").hidden || who.user === story.who?.user) return;
  forget();
  begin(who);
}

/** Nothing of what the last person saw stays, neither in the model nor in the document. */
function forget() {
  live.forget();
  story.close();
  model.forget();
  chart.forget();
  hosts.forget();
  el("jump").value = "";
  for (const view of Object.values(views)) view();
  decisions.draw(true);
  changed.clear();
}

/** @param {string} why */
function login(why) {
  forget();
  el("board").hidden = true;
  el("search").hidden = true;
  el("leave").hidden = true;
  el("login").hidden = false;
  say(el("who"), "");
  el("link").dataset.state = "out";
  say(el("link-words"), "not logged in");
  say(el("login-why"), why);
  el("token").focus();
}

el("login-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const token = el("token").value.trim();
  try {
    begin(await enter({ token }));
  } catch (error) {
    const refused = error instanceof Refused ? error : new Refused(0, "");
    const words = { 401: "This token is not valid.", 403: refused.message, 429: refused.message };
    say(
      el("login-why"),
      words[refused.status] ?? (refused.status ? refused.message : "The monitor does not answer: is the cloud up?"),
    );
    el("token").select();
  }
});

el("leave").addEventListener("click", async () => {
  await leave().catch(() => undefined);
  history.replaceState(null, "", location.pathname); // what was looked at is private
  login("You are logged out.");
});

async function start() {
  try {
    begin(await known());
  } catch (error) {
    const refused = error instanceof Refused ? error : new Refused(0, "");
    if (refused.status === 401) return login(refused.message.startsWith("This address") ? refused.message : "");
    login(AWAY[refused.status] ?? refused.message);
    window.setTimeout(() => el("login").hidden || start(), 2000);
  }
}

// An address with a code, pasted into a tab that shows the page already: browsers do not load it again.
window.addEventListener("hashchange", () => {
  if (location.hash.startsWith("#code=")) el("board").hidden ? start() : same();
});
theme(el("theme"));
search(model);
window.setInterval(() => {
  if (document.hidden || el("board").hidden) return;
  queue.tick();
  soon(["head", "chart"]);
}, TICK_S * 1000);
// For tests and for people with a console open: what the page knows. It holds nothing that the page does not show.
Object.assign(window, { phoenix: { model, live, chart } });
start();
