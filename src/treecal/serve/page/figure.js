// A chart with all that goes with it: a key, what it says in a sentence, and its numbers in a table.

import { el, fill, say, table } from "./dom.js";

/**
 * @typedef {object} Key
 * @property {string} name
 * @property {string} kind a class of the style sheet: how it is drawn
 *
 * @typedef {[{name: string, number?: boolean}[], string[][]]} Numbers columns and rows
 *
 * @typedef {object} Drawn
 * @property {string} summary
 * @property {Key[]} keys
 * @property {() => Numbers} rows called only while the table is open
 */

/**
 * @param {object} options
 * @param {string} options.id
 * @param {string} options.title
 * @param {string} options.empty what to say, and to do, while there is nothing to draw
 * @param {Node[]} [options.controls]
 * @param {string} [options.note]
 */
export function figure({ id, title, empty, controls = [], note }) {
  const box = el("div", { class: "plot", role: "img", "aria-labelledby": `${id}-title`, "aria-describedby": `${id}-summary` });
  const keys = el("ul", { class: "keys" });
  const readout = el("p", { class: "readout", "aria-hidden": "true" });
  const summary = el("p", { id: `${id}-summary` });
  const numbers = el("div");
  const details = el("details", { ontoggle: () => write() }, el("summary", {}, "The numbers in a table"), numbers);
  const drawn = el("div", { hidden: true }, ...controls, keys, box, readout, el("figcaption", {}, summary, note && el("p", { class: "soft" }, note)), details);
  const nothing = el("p", { class: "empty" }, empty);
  const section = el("section", { class: `card chart ${id}`, "aria-labelledby": `${id}-title` }, el("h2", { id: `${id}-title` }, title), el("figure", {}, nothing, drawn));

  /** @type {(() => Numbers) | null} */
  let rows = null;
  function write() {
    if (details.open && rows) fill(numbers, table(`${title}: the numbers`, ...rows()));
  }

  return {
    section,
    box,
    /** @param {string} text what is under the pointer */
    point(text) {
      say(readout, text);
    },
    /** Say that something will be drawn, so that a page which has just begun does not say otherwise. @param {boolean} some whether there is something */
    expect(some) {
      say(nothing, some ? "Being read …" : empty);
    },
    /** @param {Drawn | null} found null if there is nothing to draw */
    update(found) {
      drawn.hidden = found === null;
      nothing.hidden = found !== null;
      if (found === null) return;
      say(summary, found.summary);
      if (keys.textContent !== found.keys.map((key) => key.name).join("")) {
        fill(keys, found.keys.map((key) => el("li", { class: key.kind }, key.name)));
      }
      rows = found.rows;
      write();
    },
  };
}
