// @ts-check
// Who looks. The session is a cookie that scripts cannot read; a token is sent once, to get it, and kept nowhere.
//
// Rules
//   1. `#code=…` in the address is a one-time code (`phoenix dashboard`): it is taken out of the address before it is used,
//      so that neither the history nor a bookmark keeps it.
//   2. Every answer says the server's time; `now` is this clock corrected by what they differ (if by more than SKEW_S), so
//      that "waited 4 min" is right on a laptop whose clock is not.

const ASK_S = 20; // a story out of a long history takes a second or two; a monitor that hangs takes for ever
const SKEW_S = 3; // the header `Date` has whole seconds, and an answer takes a moment
let skew_s = 0;

/** UTC seconds, by the monitor's clock. */
export function now() {
  return Date.now() / 1000 + skew_s;
}

/** A refused or failed read: `status` 0 without an answer. */
export class Refused extends Error {
  /** @param {number} status @param {string} message */
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/**
 * JSON of an address of the monitor.
 * @param {string} path
 * @param {RequestInit} [options]
 * @returns {Promise<any>}
 */
export async function ask(path, options) {
  let answer;
  try {
    const signal = AbortSignal.timeout(ASK_S * 1000);
    answer = await fetch(path, { credentials: "same-origin", cache: "no-store", signal, ...options });
  } catch {
    throw new Refused(0, "The monitor does not answer.");
  }
  const date = Date.parse(answer.headers.get("Date") ?? "");
  if (!Number.isNaN(date)) {
    const apart = date / 1000 - Date.now() / 1000;
    skew_s = Math.abs(apart) > SKEW_S ? apart : 0;
  }
  const body = answer.status === 204 ? {} : await answer.json().catch(broken);
  if (!answer.ok) throw new Refused(answer.status, body?.detail ?? `The monitor answered ${answer.status}.`);
  return body;
}

/** An answer without JSON says nothing; one that breaks off in the middle is none. @param {unknown} error */
function broken(error) {
  if (error instanceof SyntaxError) return {};
  throw new Refused(0, "The monitor does not answer.");
}

/** @param {{token: string} | {code: string}} word */
export function enter(word) {
  return ask("/v1/session", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(word),
  });
}

export function leave() {
  return ask("/v1/session", { method: "DELETE" });
}

/** Who is logged in: by the code in the address if there is one, else by the cookie. */
export async function known() {
  const found = /^#code=([\w.~-]{1,400})$/.exec(location.hash);
  if (found === null) return ask("/v1/session");
  history.replaceState(null, "", location.pathname);
  try {
    return await enter({ code: found[1] });
  } catch (error) {
    if (!(error instanceof Refused) || error.status === 0) throw error;
    return ask("/v1/session").catch(() => {
      throw new Refused(
        401,
        "This address has been used, or is older than a minute: ask phoenix dashboard for another.",
      );
    });
  }
}
