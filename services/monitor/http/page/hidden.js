// @ts-check
// Invisible characters: controls, marks that turn the direction of a line, and what has no width. The list is that of
// schemas/control_characters.py (a test compares them), without line ends and tabs, which are the page's own.

const HIDDEN = new RegExp(
  "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\xad\\u034f\\u061c\\u115f\\u1160\\u17b4\\u17b5\\u180b-\\u180f\\u200b-\\u200f" +
    "\\u2028-\\u202e\\u2060-\\u206f\\u3164\\ufeff\\uffa0\\ufff9-\\ufffb\\ud800-\\udfff" +
    "\\u{1d173}-\\u{1d17a}\\u{e0000}-\\u{e007f}]",
  "gu",
);

/** `text` with each of them as its number. @param {string} text */
export function shown(text) {
  return text.replace(HIDDEN, (found) => {
    const code = /** @type {number} */ (found.codePointAt(0)).toString(16);
    return code.length < 3 ? `\\x${code.padStart(2, "0")}` : `\\u{${code}}`;
  });
}
