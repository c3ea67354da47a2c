// @ts-check
// The stream of changes, and how it comes back.
//
// Rules
//   1. EventSource reconnects by itself after a broken connection and says what it has seen (Last-Event-ID); the first event
//      then is a picture with the decisions behind that id.
//   2. An answer that is no stream (401, 502, 503) ends an EventSource for good. Then the session is asked: without one, people
//      are asked to log in; else a new one is opened, with `?after=` instead of the header, after a pause that doubles.
//   3. The monitor says something every two seconds, if only that there is nothing (`beat`). Silence for SILENT_S is a monitor
//      that hangs, or a connection whose other end has vanished: that is said at once, and the stream is reopened, as after
//      an end. Nothing here waits for an answer for longer than ASK_S.
//   4. A hidden tab keeps listening and draws nothing (frames are not given to it), so it is right at once when it is seen.

import { ask, Refused } from "./session.js";

const KINDS = ["picture", "hosts", "departments", "queue", "decisions", "point", "alerts"];
const SILENT_S = 8; // four beats: one or two may be late on a busy machine
const LOOK_S = 1;
const ASK_S = 4;
const PAUSE_S = [1, 2, 4, 5];

export class Live {
  /**
   * @param {{
   *   event: (kind: string, data: any) => void,
   *   state: (state: "connecting" | "live" | "lost") => void,
   *   expired: (message: string) => void,
   * }} on
   */
  constructor(on) {
    this.on = on;
    /** @type {EventSource | null} */ this.source = null;
    this.last = "";
    this.failures = 0;
    this.heard = 0;
    this.timer = 0;
    this.watch = 0;
  }

  open() {
    this.close();
    const after = this.last ? `?after=${encodeURIComponent(this.last)}` : "";
    const source = new EventSource(`/v1/stream${after}`);
    this.source = source;
    for (const kind of KINDS)
      source.addEventListener(kind, (event) => this.heardOf(kind, /** @type {MessageEvent} */ (event)));
    source.addEventListener("beat", () => this.beat());
    source.addEventListener("error", () => this.broken(source));
    this.heard = performance.now();
    this.watch = window.setInterval(() => this.silent(), LOOK_S * 1000);
  }

  /** The next stream is another user's. */
  forget() {
    this.close();
    this.last = "";
  }

  close() {
    window.clearTimeout(this.timer);
    window.clearInterval(this.watch);
    this.source?.close();
    this.source = null;
  }

  beat() {
    this.heard = performance.now();
    this.failures = 0;
  }

  /** @param {string} kind @param {MessageEvent} event */
  heardOf(kind, event) {
    this.beat();
    if (event.lastEventId) this.last = event.lastEventId;
    this.on.event(kind, JSON.parse(event.data));
    this.on.state("live");
  }

  /** @param {EventSource} source */
  broken(source) {
    if (source !== this.source) return;
    this.on.state("lost");
    if (source.readyState === EventSource.CLOSED) this.again();
  }

  /** Rule 2. */
  async again() {
    this.close();
    try {
      await ask("/v1/session", { signal: AbortSignal.timeout(ASK_S * 1000) });
    } catch (error) {
      if (error instanceof Refused && error.status === 401) return this.on.expired(error.message);
    }
    const pause = PAUSE_S[Math.min(this.failures++, PAUSE_S.length - 1)];
    this.timer = window.setTimeout(() => this.open(), pause * 1000);
  }

  /** Rule 3. */
  silent() {
    if ((performance.now() - this.heard) / 1000 < SILENT_S) return;
    this.on.state("lost");
    this.again();
  }
}
