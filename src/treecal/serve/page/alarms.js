// The alarm that stands, and those there were.

import { get, post, streamPath } from "./api.js";
import { el, fill, prose, say } from "./dom.js";
import { moment } from "./numbers.js";
import { guardedButton, problem, time } from "./parts.js";
import { alarmInWords, alarmOf, corrects, ofModelOnly, remedy } from "./words.js";

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
      const model = found?.of === "announced" && corrects(stream) ? stream.monitors.model?.alarm : null;
      const text = found ? [alarmInWords(found), found.at, model?.at, remedy(stream)].join() : "";
      if (!found || text === shown) return;
      shown = text;
      say(title, !corrects(stream) ? "Alarm" : found.of === "model" ? "Alarm for the model" : "Alarm for what is announced");
      say(words, `${alarmInWords(found).slice(0, -1)}, on ${moment(found.at)}.${model ? " There is one for the model too." : ""}`);
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
        const items = alarms.slice(0, MOST).map((alarm) => el("li", {}, el("span", { class: "soft" }, time(alarm.at), `, of ${alarm.of === "model" ? "the model’s forecasts" : "those announced"}`), el("br"), alarmInWords(alarm)));
        fill(list, el("ol", { class: "plain", reversed: true }, items), el("p", { class: "soft" }, "Outcomes are counted in the order in which they arrived, from where the watch began, or began anew."));
      } catch (error) {
        fill(list, problem(error));
      }
    },
  };
}
