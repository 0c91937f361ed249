// The course of a stream: its error with the guarantee, and the evidence against its forecasts.

import { lineChart } from "./charts.js";
import { figure } from "./figure.js";
import { amount, count, evidence } from "./numbers.js";
import { errorSummary, evidenceSummary, useful } from "./words.js";

/**
 * @typedef {import("./wire.js").Curve} Curve
 * @typedef {import("./wire.js").Mark} Mark
 * @typedef {import("./wire.js").Evidence} Evidence
 */

const MODEL = { name: "the model", kind: "model", colour: "--model" };
const ANNOUNCED = { name: "announced", kind: "announced", colour: "--blue" };
const GUARANTEE = { name: "guaranteed ≤", kind: "guarantee", colour: "--soft", dash: [7, 4] };
const ROOM = 5; // decades beside the alarm line: evidence has no limit, and all that matters is on which side it is
const ALARM = { name: "alarm", kind: "limit" };

/** The error over time. */
export function errorCourse() {
  const own = figure({ id: "error", title: "Error over time", empty: "The curve begins with the first outcome." });
  const chart = lineChart(own.box, { lines: [GUARANTEE, MODEL, ANNOUNCED], label: "error a round", onPoint: point });
  /** @type {Mark[]} */
  let marks = [];
  let both = false;

  /** @param {number | null} index */
  function point(index) {
    const mark = index === null ? null : marks[index];
    const bound = mark?.guarantee == null ? "" : `, guaranteed ≤ ${amount(mark.guarantee)}`;
    const model = mark && both ? `the model ${amount(mark.model)}, ` : "";
    own.point(mark ? `after ${count(mark.rounds)}: ${model}announced ${amount(mark.announced)}${bound}` : "");
  }

  return {
    section: own.section,
    expect: own.expect,
    /** @param {Curve} curve @param {boolean} same whether the model's forecasts are announced as they are @param {boolean} classes whether outcomes are classes */
    update(curve, same, classes) {
      marks = curve.marks;
      both = !same && marks.some((mark) => mark.model !== null);
      if (!marks.length) return own.update(null);
      const bounded = marks.some((mark) => useful(mark.guarantee, classes));
      own.update({
        summary: `${errorSummary(marks, both, classes)} Errors are the ${curve.error}.`,
        keys: [...(both ? [MODEL] : []), ANNOUNCED, ...(bounded ? [GUARANTEE] : [])],
        rows: () => [
          [{ name: "outcomes", number: true }, ...(both ? [{ name: "the model", number: true }] : []), { name: "announced", number: true }, ...(bounded ? [{ name: "guaranteed ≤", number: true }] : [])],
          marks.map((mark) => [count(mark.rounds), ...(both ? [amount(mark.model)] : []), amount(mark.announced), ...(bounded ? [amount(mark.guarantee)] : [])]),
        ],
      });
      chart.update(marks.map((mark) => mark.rounds), [marks.map((mark) => (bounded ? mark.guarantee : null)), marks.map((mark) => (both ? mark.model : null)), marks.map((mark) => mark.announced)]);
    },
  };
}

/** The evidence over time, with the line at which an alarm is raised. */
export function evidenceCourse() {
  const own = figure({
    id: "evidence",
    title: "Evidence against the forecasts",
    empty: "Evidence begins at 1 with the first outcome, and stays about there while the forecasts are right.",
    note: "The e-value: what betting against the forecasts at their own odds has multiplied the stake by.",
  });
  const chart = lineChart(own.box, { lines: [MODEL, ANNOUNCED], label: "e-value", onPoint: point });
  /** @type {Mark[]} */
  let marks = [];
  let both = false;

  /** @param {number | null} index */
  function point(index) {
    const mark = index === null ? null : marks[index];
    const model = mark && both ? `against the model’s ${evidence(mark.model_evidence)}, ` : "";
    own.point(mark ? `after ${count(mark.rounds)}: ${model}announced ${evidence(mark.announced_evidence)}` : "");
  }

  return {
    section: own.section,
    expect: own.expect,
    /** @param {Curve} curve @param {Record<string, Evidence>} monitors @param {boolean} same */
    update(curve, monitors, same) {
      marks = curve.marks.filter((mark) => mark.model_evidence !== null || mark.announced_evidence !== null);
      both = !same && marks.some((mark) => mark.model_evidence !== null);
      const now = monitors.announced ?? monitors.model;
      own.section.hidden = !now; // what a stream forecasts by itself is not watched
      if (!marks.length || !now) return own.update(null);
      own.update({
        summary: evidenceSummary(monitors, both),
        keys: [...(both ? [MODEL] : []), ANNOUNCED, ALARM],
        rows: () => [
          [{ name: "outcomes", number: true }, ...(both ? [{ name: "against the model’s", number: true }] : []), { name: "against those announced", number: true }],
          marks.map((mark) => [count(mark.rounds), ...(both ? [evidence(mark.model_evidence)] : []), evidence(mark.announced_evidence ?? mark.model_evidence)]),
        ],
      });
      chart.update(
        marks.map((mark) => mark.rounds),
        [marks.map((mark) => (both ? mark.model_evidence : null)), marks.map((mark) => mark.announced_evidence ?? (both ? null : mark.model_evidence))],
        { value: now.threshold, words: `alarm at ${evidence(now.threshold)}`, room: ROOM },
      );
    },
  };
}
