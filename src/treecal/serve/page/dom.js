// Elements without markup in text: what comes from the server is always text, never HTML.

/**
 * @typedef {Node | string | number | null | undefined | false} Child
 * @typedef {Record<string, any>} Props
 */

/**
 * Make an element. A property whose name starts with "on" is a listener, `dataset` an object, others are attributes;
 * `true` is an empty attribute, and `false` or null none.
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T} tag
 * @param {Props} [props]
 * @param {...(Child | Child[])} children
 * @returns {HTMLElementTagNameMap[T]}
 */
export function el(tag, props = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "dataset") Object.assign(made.dataset, value);
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  made.append(...nodes(children));
  return made;
}

/**
 * Replace what an element holds.
 * @param {Element} parent
 * @param {...(Child | Child[])} children
 */
export function fill(parent, ...children) {
  parent.replaceChildren(...nodes(children));
}

/**
 * Set the text of an element, if it is another one: assistive technology hears of changes only.
 * @param {Element} element
 * @param {string} text
 */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/**
 * A table in a box that scrolls by itself, also by keyboard.
 * @param {string} label what the table holds, for those who do not see it
 * @param {{name: string, number?: boolean}[]} columns
 * @param {Child[][]} rows the first cell of each is its heading
 */
export function table(label, columns, rows) {
  const kind = columns.map((column) => (column.number ? "number" : null));
  return el(
    "div",
    { class: "wide", tabindex: 0, role: "region", "aria-label": label },
    el(
      "table",
      {},
      el("thead", {}, el("tr", {}, columns.map((column, i) => el("th", { scope: "col", class: kind[i] }, column.name)))),
      el(
        "tbody",
        {},
        rows.map((row) =>
          el("tr", {}, row.map((cell, i) => (i ? el("td", { class: kind[i] }, cell) : el("th", { scope: "row", class: kind[i] }, cell)))),
        ),
      ),
    ),
  );
}

/**
 * A sentence in which names of the package, such as tc.VectorScaling, are set as code.
 * @param {string} text
 * @returns {Node[]}
 */
export function prose(text) {
  return text
    .split(/(tc\.\w+)/)
    .filter(Boolean)
    .map((part) => (part.startsWith("tc.") ? el("code", {}, part) : document.createTextNode(part)));
}

/** @param {(Child | Child[])[]} children @returns {(Node | string)[]} */
function nodes(children) {
  return children.flat().flatMap((child) => (child === null || child === undefined || child === false ? [] : [typeof child === "number" ? String(child) : child]));
}
