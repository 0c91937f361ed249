// A stream in words: how it stands, what needs attention, what to do.

import { amount, count, counted, decimals, evidence, percent } from "./numbers.js";

/**
 * @typedef {import("./wire.js").Stream} Stream
 * @typedef {import("./wire.js").Evidence} Evidence
 * @typedef {import("./wire.js").Mark} Mark
 * @typedef {import("./wire.js").Bins} Bins
 */

const LEVELS = ["far off", "somewhat off", "cannot tell", "nearly calibrated", "calibrated"];

/** Whether a model's forecasts are corrected, so that there are two of each to compare. @param {Stream} stream */
export function corrects(stream) {
  return Boolean(stream.config.corrector);
}

/** How a stream stands, in a word or two. @param {Stream} stream */
export function level(stream) {
  if (stream.verdict) return stream.verdict.level;
  return stream.counts.learned === 0 ? "no outcomes yet" : "no verdict";
}

/** The sentence that goes with it. @param {Stream} stream */
export function sentence(stream) {
  const { verdict, counts } = stream;
  if (verdict) return verdict.level === "calibrated" ? (verdict.sentences[1] ?? verdict.advice) : verdict.advice;
  if (counts.forecasts === 0) return "Send its first forecast: the page of the stream says how.";
  if (counts.learned === 0) return "Forecasts have come; a verdict needs their outcomes.";
  return "A verdict is for outcomes that are classes.";
}

/** The alarm that stands: of what is announced, else of the model. @param {Stream} stream */
export function alarmOf(stream) {
  return stream.monitors.announced?.alarm ?? stream.monitors.model?.alarm ?? null;
}

/** Whether an alarm is about the model only: what is announced is watched by itself. @param {Stream} stream */
export function ofModelOnly(stream) {
  return corrects(stream) && alarmOf(stream)?.of === "model";
}

/** Where a monitor stands, in a few words. @param {Stream} stream */
export function watch(stream) {
  const found = alarmOf(stream);
  if (found) return `${fault(found)}, since round ${count(found.onset)}`;
  const now = stream.monitors.announced ?? stream.monitors.model;
  return now ? `evidence ${evidence(now.value)} of ${evidence(now.threshold)}` : "not watched";
}

/** What an alarm says is wrong. @param {import("./wire.js").Alarm} alarm */
function fault({ kind, where, direction, group }) {
  const at = kind === "confidence" ? `${direction} at about ${percent(Number(where) + 0.05)}` : where === null ? direction : `${where} ${direction}`;
  return group === null ? at : `${group}: ${at}`;
}

/**
 * What needs attention comes first: an alarm, then the verdict, what is overdue, then by name; archived streams last.
 * @param {Stream} a
 * @param {Stream} b
 */
export function byAttention(a, b) {
  const [x, y] = [rank(a), rank(b)];
  const i = x.findIndex((value, k) => value !== y[k]);
  return i < 0 ? a.name.localeCompare(b.name, "en") : x[i] - y[i];
}

/** @param {Stream} stream */
function rank(stream) {
  const found = alarmOf(stream);
  const place = LEVELS.indexOf(level(stream));
  return [
    stream.archived === null ? 0 : 1,
    found === null ? 2 : ofModelOnly(stream) ? 1 : 0,
    place < 0 ? LEVELS.length : place <= 1 ? place : 2, // what is off, before what is overdue
    stream.counts.overdue ? 0 : 1,
    place < 0 ? LEVELS.length : place,
  ];
}

/** All streams in a sentence. @param {Stream[]} streams */
export function overview(streams) {
  const open = streams.filter((stream) => stream.archived === null);
  const alarms = open.filter(alarmOf).length;
  const off = open.filter((stream) => ["far off", "somewhat off"].includes(level(stream))).length;
  const overdue = open.reduce((sum, stream) => sum + stream.counts.overdue, 0);
  const parts = [
    alarms ? counted(alarms, "alarm") : "no alarm",
    `${count(off)} off`,
    overdue ? `${counted(overdue, "outcome")} overdue` : "nothing overdue",
  ];
  return `${counted(open.length, "stream")}: ${parts.join(", ")}.`;
}

/** How a stream was made, in a line. @param {Stream} stream */
export function made(stream) {
  const { classes, set, corrector, forecaster, gate, monitor } = stream.config;
  const of = classes ? `${counted(classes.length, "class", "classes")}: ${short(classes)}` : `outcomes in ${set?.name ?? "a set"}`;
  const by = corrector
    ? `corrected by ${corrector.name}${gate ? ", once there is evidence that it helps" : ""}`
    : forecaster
      ? `forecast by ${forecaster.name}`
      : "the model’s forecasts as they are";
  const watched = forecaster || monitor === null ? "not watched" : monitor?.arl ? `one false alarm in ${count(monitor.arl)} rounds` : `false alarms at most ${amount(monitor?.alpha ?? 0.05)}`;
  return `${of} · ${by} · ${watched}`;
}

/** What an alarm asks for. @param {Stream} stream */
export function remedy(stream) {
  const found = alarmOf(stream);
  if (!found) return "";
  const after = "Then begin anew: the evidence starts again at 1.";
  if (ofModelOnly(stream)) {
    return `The model is off; what is announced is corrected, and watched by itself. See to the model when you can. ${after}`;
  }
  const advice = stream.verdict && !["calibrated", "cannot tell"].includes(stream.verdict.level) ? `${stream.verdict.advice} ` : "";
  return `Find out what changed since round ${count(found.onset)}: data, labels, the model. ${advice}${after}`;
}

/** The error over time in a sentence. @param {Mark[]} marks @param {boolean} both whether model and announced differ */
export function errorSummary(marks, both) {
  const last = marks.at(-1);
  if (!last) return "";
  const model = both && last.model !== null ? `; that of the model’s is ${amount(last.model)}` : "";
  const bound = last.guarantee === null ? "" : `. It is guaranteed to be at most ${amount(last.guarantee)}`;
  return `After ${counted(last.rounds, "outcome")}, the error of the forecasts announced is ${amount(last.announced)} a round${model}${bound}.`;
}

/** The evidence in a sentence. @param {Record<string, Evidence>} monitors @param {boolean} both */
export function evidenceSummary(monitors, both) {
  const own = monitors.announced ?? monitors.model;
  if (!own) return "This stream has no monitor.";
  const model = both && monitors.model && own !== monitors.model ? `, against the model’s ${evidence(monitors.model.value)}` : "";
  const found = own.alarm ? ` An alarm was raised after round ${count(own.alarm.round)}.` : " There is no alarm.";
  return (
    `The evidence against the forecasts announced is ${evidence(own.value)}${model}; at most it was ${evidence(own.peak)}. ` +
    `An alarm is raised at ${evidence(own.threshold)}.${found}`
  );
}

/**
 * A reliability diagram in a sentence.
 * @param {string} what
 * @param {string} over which rounds, if not all
 * @param {Bins | null} announced
 * @param {Bins | null} model
 */
export function reliabilitySummary(what, over, announced, model) {
  const own = announced ?? model;
  if (!own) return "";
  const worst = own.bins.reduce((a, b) => (Math.abs(b.gap) * b.weight > Math.abs(a.gap) * a.weight ? b : a));
  const before = model && announced ? `; the model’s is ${decimals(model.ece)}` : "";
  return (
    `For ${what}${over}, the ECE is ${decimals(own.ece)}${before}; calibrated forecasts would show ${decimals(own.chance.mean)} by chance. ` +
    `Most of it: where ${decimals(worst.forecast)} was forecast, ${decimals(worst.outcome)} came, in ${counted(worst.weight, "round")}.`
  );
}

/** Names, as many as fit in a line. @param {string[]} names */
export function short(names) {
  return names.length <= 6 ? names.join(", ") : `${names.slice(0, 5).join(", ")} and ${count(names.length - 5)} more`;
}

/** A forecast, the likeliest classes first. @param {number[]} forecast @param {string[] | null | undefined} classes */
export function forecastInWords(forecast, classes) {
  const two = (/** @type {number} */ x) => x.toFixed(2);
  if (!classes) return `${forecast.slice(0, 4).map(two).join(", ")}${forecast.length > 4 ? ", …" : ""}`;
  const order = forecast.map((_, i) => i).sort((i, j) => forecast[j] - forecast[i]);
  const named = order.slice(0, 3).map((i) => `${classes[i]} ${two(forecast[i])}`);
  return named.join(", ") + (order.length > 3 ? ", …" : "");
}
