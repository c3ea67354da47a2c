// @ts-check
// Elements from data. Names of jobs, users and hosts are other people's words:
//   1. Text gets into the page as text nodes alone. Nothing in this page assigns markup (tests/unit/test_page_files.py).
//   2. Attributes are set by name from this code; an `on…` attribute is a listener, never text. An `href` is a fragment.
//   3. Invisible characters, and those that turn a line's direction, are shown by their number.
//   4. Lists are changed, not rebuilt (`keyed`): what has the focus keeps it, and what is unchanged is not touched.

import { shown } from "./hidden.js";

const READ = new Set(["aria-label", "title", "placeholder"]); // attributes that people read or hear
const SVG = "http://www.w3.org/2000/svg";

/** @typedef {Node | string | number | null | undefined | false} Child */

/**
 * @param {string} tag
 * @param {Record<string, any> | null} [attributes]
 * @param {...(Child | Child[])} children
 * @returns {HTMLElement}
 */
export function h(tag, attributes, ...children) {
  return /** @type {HTMLElement} */ (filled(document.createElement(tag), attributes, children));
}

/**
 * The same in SVG.
 * @param {string} tag
 * @param {Record<string, any> | null} [attributes]
 * @param {...(Child | Child[])} children
 */
export function s(tag, attributes, ...children) {
  return /** @type {SVGElement} */ (filled(document.createElementNS(SVG, tag), attributes, children));
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (READ.has(name)) element.setAttribute(name, shown(String(value)));
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat()) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : shown(String(child)));
  }
  return element;
}

/** @param {string} id @returns {any} */
export function el(id) {
  const found = document.getElementById(id);
  if (found === null) throw new Error(`the page has no #${id}`);
  return found;
}

/** Give `element` this text, if it has another. @param {Element} element @param {string | number} text */
export function say(element, text) {
  const words = shown(String(text));
  if (element.textContent !== words) element.textContent = words;
}

/**
 * Let `parent`'s children be those of `items`, in this order. A child is kept as long as its key is there.
 * @template T
 * @param {Element} parent
 * @param {Iterable<T>} items
 * @param {(item: T) => string} keyOf
 * @param {(item: T) => Element} make
 * @param {(element: any, item: T) => void} [change] of those that are kept, and of new ones
 */
export function keyed(parent, items, keyOf, make, change) {
  const before = new Map();
  for (const child of parent.children) before.set(/** @type {any} */ (child).phoenixKey, child);
  let next = parent.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    let child = before.get(key);
    if (child === undefined) {
      child = make(item);
      child.phoenixKey = key;
    } else before.delete(key);
    change?.(child, item);
    if (child === next) next = next.nextElementSibling;
    else parent.insertBefore(child, next);
  }
  for (const child of before.values()) child.remove();
}
