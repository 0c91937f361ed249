// The verdict in words, and what to do.

import { el, fill, prose, say } from "./dom.js";
import { ago, count, evidence } from "./numbers.js";
import { badge } from "./parts.js";
import { advice, benefit, corrects, level, reconciled, sentence } from "./words.js";

/** @typedef {import("./wire.js").Stream} Stream */

export function verdictCard() {
  const body = el("div", { class: "verdicts" });
  const help = el("p");
  const helps = el("div", { hidden: true }, el("h3", {}, "Does the correction help?"), help);
  const section = el("section", { class: "card verdict", "aria-labelledby": "verdict-title" }, el("h2", { id: "verdict-title" }, "Verdict"), body, helps);
  let shown = "";
  return {
    section,
    /** @param {Stream} stream */
    update(stream) {
      const key = JSON.stringify([stream.verdict, stream.model_verdict, level(stream), sentence(stream), advice(stream), reconciled(stream, "announced")]);
      if (key === shown) return;
      shown = key;
      const { verdict, model_verdict: model } = stream;
      if (!verdict) return fill(body, el("p", {}, badge(level(stream)), " ", stream.counts.forecasts ? sentence(stream) : "Send its first forecast, as below; this page will move by itself."));
      const both = corrects(stream) && model;
      const why = reconciled(stream, "announced");
      const whyModel = why ? "" : reconciled(stream, "model");
      fill(
        body,
        el(
          "div",
          {},
          el("h3", {}, both ? "What is announced " : "", badge(verdict.level)),
          el("p", {}, prose(verdict.sentences.join(" "))),
          why && el("p", {}, why),
          el("p", {}, el("strong", {}, "What to do: "), prose(advice(stream))),
        ),
        both && el("div", {}, el("h3", {}, "The model alone ", badge(model.level)), el("p", {}, prose(model.sentences.join(" "))), whyModel && el("p", {}, whyModel)),
      );
    },
    /** @param {import("./wire.js").Scores} scores @param {Stream} stream one that corrects */
    compare(scores, stream) {
      const text = benefit(scores, Boolean(stream.config.gate));
      helps.hidden = !text;
      say(help, text);
    },
  };
}

/** The numbers of a stream in a row. They change in their places, so that a reader's own place stays. */
export function facts() {
  const list = el("dl", { class: "facts" });
  /** @type {Map<string, {pair: HTMLElement, value: HTMLElement}>} */
  const shown = new Map();

  /** @param {string} name @param {string | null} text null for nothing to show @param {boolean} [alert] */
  function set(name, text, alert = false) {
    let found = shown.get(name);
    if (!found) {
      const value = el("dd");
      found = { pair: el("div", {}, el("dt", {}, name), value), value };
      shown.set(name, found);
      list.append(found.pair);
    }
    found.pair.hidden = text === null;
    found.pair.classList.toggle("alert", alert);
    say(found.value, text ?? "");
  }

  return {
    section: list,
    /** @param {Stream} stream */
    update({ counts, monitors, last }) {
      const now = monitors.announced ?? monitors.model;
      set("forecasts", count(counts.forecasts));
      set("outcomes", count(counts.learned));
      set("pending", count(counts.pending));
      set("overdue", count(counts.overdue), counts.overdue > 0);
      set("late or void", counts.late + counts.void ? count(counts.late + counts.void) : null);
      set("amended", counts.amended ? count(counts.amended) : null);
      set("evidence now", now ? `${evidence(now.value)} of ${evidence(now.threshold)}${now.alarm ? ", alarm stands" : ""}` : null, Boolean(now?.alarm));
      set("last heard of", last === null ? "never" : ago(last));
    },
  };
}
