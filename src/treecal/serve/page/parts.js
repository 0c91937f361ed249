// Small things that several views show.

import { Refused } from "./api.js";
import { el, fill } from "./dom.js";
import { ago, moment } from "./numbers.js";

/** How a stream stands, as a badge: the words say it, colour and sign only repeat it. @param {string} level */
export function badge(level) {
  return el("span", { class: `badge ${level.replaceAll(" ", "-")}` }, level);
}

/** A moment, as the time that has passed; the moment itself is its title. @param {number | null} seconds */
export function time(seconds) {
  if (seconds === null) return "–";
  return el("time", { datetime: new Date(1000 * seconds).toISOString(), title: moment(seconds) }, ago(seconds));
}

/** What went wrong, and what would be right. @param {unknown} error */
export function problem(error) {
  const hint = error instanceof Refused ? error.hint : null;
  return el("p", { class: "problem", role: "alert" }, inWords(error), hint && ` ${sentence(hint)}`);
}

/** @param {unknown} error */
export function inWords(error) {
  if (error instanceof Refused) return sentence(error.message) + (error.status === 403 ? " Your token does not allow it." : "");
  return "The server cannot be reached. This page tries again by itself.";
}

/**
 * A button that asks before it acts.
 * @param {object} options
 * @param {string} options.name
 * @param {string} options.question
 * @param {string} options.consequence
 * @param {string} [options.kind]
 * @param {() => Promise<void>} options.act
 */
export function guardedButton({ name, question, consequence, kind = "", act }) {
  const trouble = el("div");
  const yes = el("button", { type: "button", class: kind }, name);
  const no = el("button", { type: "button", class: "quiet", onclick: () => dialog.close() }, "Cancel");
  const title = el("h2", {}, question);
  const dialog = el("dialog", { "aria-label": question }, title, el("p", {}, consequence), trouble, el("div", { class: "row" }, yes, no));
  yes.addEventListener("click", async () => {
    yes.disabled = true;
    try {
      await act();
      dialog.close();
      // What was acted on may be gone with its button: then the focus goes to the page, not nowhere.
      if (!opener.checkVisibility()) document.getElementById("main")?.focus();
    } catch (error) {
      fill(trouble, problem(error));
    } finally {
      yes.disabled = false;
    }
  });
  const open = () => {
    fill(trouble);
    dialog.showModal();
    no.focus();
  };
  const opener = el("button", { type: "button", class: kind, onclick: open, "aria-haspopup": "dialog" }, name);
  return el("span", {}, opener, dialog);
}

/** @param {string} text */
function sentence(text) {
  const ended = /[.!?]$/.test(text) ? text : `${text}.`;
  return ended[0].toUpperCase() + ended.slice(1);
}
