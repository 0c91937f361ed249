// The alarm that stands, and those there were.

import { get, post, streamPath } from "./api.js";
import { el, fill, prose, say } from "./dom.js";
import { moment } from "./numbers.js";
import { guardedButton, problem, time } from "./parts.js";
import { alarmOf, ofModelOnly, remedy } from "./words.js";

/** @typedef {import("./wire.js").Stream} Stream */

const MOST = 10;

/**
 * The alarm that stands, above everything else.
 * @param {string} name of the stream
 * @param {(stream: Stream) => void} onReset
 */
export function alarmBanner(name, onReset) {
  const words = el("p", { class: "words" });
  const title = el("h2");
  const advice = el("p");
  const button = guardedButton({
    name: "Begin anew",
    question: "Begin to watch anew?",
    consequence: "The monitors forget their evidence and start again at 1. Forecasts, outcomes and the record of the alarm stay.",
    act: async () => onReset(await post(streamPath(name, "reset"))),
  });
  const inner = el("div", { class: "alarm card", hidden: true }, title, words, advice, button);
  const section = el("div", { role: "status" }, inner);
  let shown = "";
  return {
    section,
    /** @param {Stream} stream */
    update(stream) {
      const found = alarmOf(stream);
      inner.hidden = found === null;
      inner.classList.toggle("mild", ofModelOnly(stream));
      const text = found ? found.words + remedy(stream) : "";
      if (!found || text === shown) return;
      shown = text;
      say(title, ofModelOnly(stream) ? "Alarm for the model" : "Alarm");
      say(words, `${capital(found.words)}. It was raised on ${moment(found.at)}.`);
      fill(advice, el("strong", {}, "What to do: "), prose(remedy(stream)));
    },
  };
}

/** The alarms there were, the latest first. @param {string} name of the stream */
export function alarmList(name) {
  const list = el("div");
  const section = el("section", { class: "card", "aria-labelledby": "alarms-title" }, el("h2", { id: "alarms-title" }, "Alarms"), list);
  return {
    section,
    async update() {
      try {
        /** @type {import("./wire.js").Alarms} */
        const { alarms } = await get("/v1/alarms", { stream: name });
        if (!alarms.length) return fill(list, el("p", { class: "empty" }, "None so far. An alarm says since when, for which class, in which direction and by how much forecasts are off."));
        const items = alarms.slice(0, MOST).map((alarm) => el("li", {}, el("span", { class: "soft" }, time(alarm.at), `, of ${alarm.of === "model" ? "the model’s forecasts" : "those announced"}`), el("br"), `${capital(alarm.words)}.`));
        fill(list, el("ol", { class: "plain", reversed: true }, items));
      } catch (error) {
        fill(list, problem(error));
      }
    },
  };
}

/** @param {string} text */
function capital(text) {
  return text[0].toUpperCase() + text.slice(1);
}
