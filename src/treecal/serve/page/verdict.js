// The verdict in words, and what to do.

import { el, fill, prose } from "./dom.js";
import { ago, count, evidence } from "./numbers.js";
import { badge } from "./parts.js";
import { level, plays, sentence } from "./words.js";

/** @typedef {import("./wire.js").Stream} Stream */

export function verdictCard() {
  const body = el("div", { class: "verdicts" });
  const section = el("section", { class: "card verdict", "aria-labelledby": "verdict-title" }, el("h2", { id: "verdict-title" }, "Verdict"), body);
  let shown = "";
  return {
    section,
    /** @param {Stream} stream */
    update(stream) {
      const key = JSON.stringify([stream.verdict, stream.model_verdict, level(stream), sentence(stream)]);
      if (key === shown) return;
      shown = key;
      const { verdict, model_verdict: model } = stream;
      if (!verdict) return fill(body, el("p", {}, badge(level(stream)), " ", stream.counts.forecasts ? sentence(stream) : "Send its first forecast, as below; this page will move by itself."));
      const both = plays(stream) && model;
      fill(
        body,
        el(
          "div",
          {},
          el("h3", {}, both ? "What is announced " : "", badge(verdict.level)),
          el("p", {}, prose(verdict.sentences.join(" "))),
          el("p", {}, el("strong", {}, "What to do: "), prose(verdict.advice)),
        ),
        both && el("div", {}, el("h3", {}, "The model alone ", badge(model.level)), el("p", {}, prose(model.sentences.join(" ")))),
      );
    },
  };
}

/** The numbers of a stream in a row. */
export function facts() {
  const list = el("dl", { class: "facts" });
  return {
    section: list,
    /** @param {Stream} stream */
    update(stream) {
      const { counts, monitors } = stream;
      const now = monitors.announced ?? monitors.model;
      /** @type {[string, string, boolean?][]} */
      const found = [
        ["forecasts", count(counts.forecasts)],
        ["outcomes", count(counts.learned)],
        ["pending", count(counts.pending)],
        ["overdue", count(counts.overdue), counts.overdue > 0],
        ...(counts.late + counts.void ? [/** @type {[string, string]} */ (["late or void", count(counts.late + counts.void)])] : []),
        ...(counts.amended ? [/** @type {[string, string]} */ (["amended", count(counts.amended)])] : []),
        ...(now ? [/** @type {[string, string, boolean]} */ (["evidence now", `${evidence(now.value)} of ${evidence(now.threshold)}`, now.alarm !== null])] : []),
        ["last heard of", stream.last === null ? "never" : ago(stream.last)],
      ];
      fill(list, found.map(([name, value, alert]) => el("div", { class: alert ? "alert" : null }, el("dt", {}, name), el("dd", {}, value))));
    },
  };
}
