// A stream in words: how it stands, what needs attention, what to do.

import { amount, count, counted, decimals, evidence, moment, nth, percent } from "./numbers.js";

/**
 * @typedef {import("./wire.js").Stream} Stream
 * @typedef {import("./wire.js").Evidence} Evidence
 * @typedef {import("./wire.js").Mark} Mark
 * @typedef {import("./wire.js").Bins} Bins
 * @typedef {import("./wire.js").Alarm} Alarm
 * @typedef {import("./wire.js").Scores} Scores
 */

const LEVELS = ["far off", "somewhat off", "cannot tell", "nearly calibrated", "calibrated"];
const CALM = ["calibrated", "nearly calibrated", "cannot tell"]; // levels that an alarm seems to contradict
const PROOF = 1e200; // evidence that only a forecast of 0 gives
const LARGEST = 2; // the l1 error of forecasts of classes when all of them are as wrong as can be
const GUARANTEED = ["guarded", "treecal", "adaptive"]; // forecasters that play a copy of themselves for each round that waits
const MANY = 10; // of which each copy hears too little

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
  if (verdict && !ofModelOnly(stream) && contradicts(alarmOf(stream), verdict.level)) return "Over all outcomes together; the alarm looks at them in order.";
  if (verdict) return verdict.level === "calibrated" ? (verdict.sentences[1] ?? verdict.advice) : verdict.advice;
  if (counts.forecasts === 0) return "Send its first forecast: the page of the stream says how.";
  if (counts.learned === 0) return "Forecasts have come; a verdict needs their outcomes.";
  return isNumber(stream) ? "A verdict is for outcomes that are classes; of numbers the scores below say how often intervals held." : "A verdict is for outcomes that are classes.";
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
  const of = corrects(stream) ? `${found?.of === "model" ? "the model" : "announced"}: ` : "";
  if (found) return `${of}${fault(found)}, ${since(found)}`;
  const now = stream.monitors.announced ?? stream.monitors.model;
  return now ? `evidence ${evidence(now.value)} of ${evidence(now.threshold)}` : "not watched";
}

/** Since when, in outcomes. @param {Alarm} alarm */
function since({ onset }) {
  return onset === 1 ? "since the first outcome" : `since about the ${nth(onset)} outcome`;
}

/** An alarm in two sentences: what is wrong, and since when. @param {Alarm} alarm */
export function alarmInWords(alarm) {
  const { kind, where, direction, size, gap, e_value: found, group } = alarm;
  const inGroup = group === null ? "" : ` in group ${group}`;
  const after = `It was raised after ${counted(alarm.round, "outcome")}`;
  const share = shareOfNumbers(alarm);
  if (found === null || found > PROOF) {
    const which = share ? "a number" : direction === "too high" ? "another class" : where;
    return `The outcome${inGroup} was ${which}, to which the forecast gave the probability 0. ${after}.`;
  }
  const of = kind === "confidence" ? ` of about ${percent(Number(where) + 0.05)}` : share || where === null || kind === "slope" ? "" : ` of ${where}`;
  const by = share ? `: ${share}` : kind === "slope" ? "" : `, by ${amount(Math.abs(gap))} on average`;
  const factor = kind === "temperature" ? ` (a temperature of about ${Number(size.toPrecision(2))})` : "";
  return `Forecasts${of}${inGroup} are ${direction}${by}${factor}, ${since(alarm)}, which arrived on ${moment(alarm.since)}. ${after}.`;
}

/** What an alarm about forecasts of a number has counted; nothing of other forecasts. @param {Alarm} alarm */
function shareOfNumbers({ kind, where, gap }) {
  const level = kind === "shift" ? 0.5 : Number(where ?? 0.9);
  const came = percent(Math.min(Math.max(level + gap, 0), 1));
  if (kind === "shift") return `${came} of the outcomes were above the median`;
  if (kind === "level") return `${came} of the outcomes were below the ${percent(level)} quantile`;
  return kind === "spread" || kind === "interval" ? `the ${percent(level)} interval held ${came}` : "";
}

/** What an alarm says is wrong, in a few words. @param {Alarm} alarm */
function fault(alarm) {
  const { kind, where, direction, group } = alarm;
  const whole = where === null || shareOfNumbers(alarm);
  const at = kind === "confidence" ? `${direction} at about ${percent(Number(where) + 0.05)}` : whole ? direction : `${where} ${direction}`;
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
  const { low, high } = set?.options ?? {};
  const of = isNumber(stream) ? `numbers from ${low} to ${high}` : classes ? `${counted(classes.length, "class", "classes")}: ${short(classes)}` : `outcomes in ${set?.name ?? "a set"}`;
  const by = corrector
    ? `corrected by ${corrector.name}${gate ? ", once there is evidence that it helps" : ""}`
    : forecaster
      ? `forecast by ${forecaster.name}`
      : "the model’s forecasts as they are";
  const watched = forecaster || monitor === null ? "not watched" : monitor?.arl ? `one false alarm in ${count(monitor.arl)} outcomes on average` : `the probability of ever raising a false alarm is at most ${percent(monitor?.alpha ?? 0.05)}`;
  return `${of} · ${by} · ${watched}`;
}

/** What an alarm asks for. @param {Stream} stream */
export function remedy(stream) {
  const found = alarmOf(stream);
  if (!found) return "";
  const after = "Then begin anew: the evidence starts again at 1, and until you do the alarm stays.";
  if (ofModelOnly(stream)) {
    return `The model is off; what is announced is corrected, and watched by itself. See to the model when you can. ${after}`;
  }
  if (corrects(stream) && !stream.monitors.model?.alarm) {
    const gate = stream.config.gate ? "" : "that corrects only once there is evidence that it helps, or ";
    return `The model’s own forecasts have raised no alarm, so look at the correction: consider a stream ${gate}that announces the model’s forecasts as they are. ${after}`;
  }
  return `Find out what changed ${since(found)}: data, labels, the model. ${after}`;
}

/** Whether a verdict seems to say that there is nothing to an alarm. @param {Alarm | null | undefined} alarm @param {string} verdict its level */
function contradicts(alarm, verdict) {
  return Boolean(alarm) && CALM.includes(verdict);
}

/** Why an alarm and a verdict that says otherwise can both be right; or nothing. @param {Stream} stream @param {"announced" | "model"} of */
export function reconciled(stream, of) {
  const verdict = of === "model" ? stream.model_verdict : stream.verdict;
  const alarm = stream.monitors[of]?.alarm ?? (corrects(stream) ? null : alarmOf(stream));
  if (!verdict || !contradicts(alarm, verdict.level)) return "";
  return (
    `The alarm can be right all the same: the verdict is over all ${counted(stream.counts.learned, "outcome")} together, where errors along the way can even out; ` +
    "the alarm looks at them in the order in which they arrived, and stays until you begin anew."
  );
}

/** What to do, by the verdict and by the alarm that stands. @param {Stream} stream */
export function advice(stream) {
  const { verdict } = stream;
  if (!verdict) return "";
  if (!contradicts(alarmOf(stream), verdict.level)) return verdict.advice;
  return ofModelOnly(stream) ? "Nothing about what is announced; the alarm is of the model alone." : "See to the alarm first.";
}

/** Whether the correction helps, in scores. @param {Scores} scores @param {boolean} gate whether it waits until there is evidence for it */
export function benefit({ model, announced, change, rounds, of }, gate) {
  if (!model || !announced || !change) return "";
  const name = model.intervals ? "Brier score" : model.coverage ? "CRPS" : "squared error";
  const numbers = `Over ${rounds < of ? "the last " : ""}${counted(rounds, "outcome")}, the ${name} of the model is ${scored(model)}, that of what is announced ${scored(announced)}; lower is better.`;
  if (change.value === 0) return `${numbers} The correction has changed nothing so far.`;
  const [by, spread] = [Math.abs(change.value), (change.high - change.low) / 2].map((x) => amount(Number(x.toPrecision(2))));
  const effect = `The correction ${change.value < 0 ? "lowers" : "raises"} it by ${by}, give or take ${spread}`;
  if (change.low <= 0 && change.high >= 0) return `${numbers} ${effect}: too early to tell whether it helps.`;
  if (change.value < 0) return `${numbers} ${effect}: it helps.`;
  return `${numbers} ${effect}: so far it does harm.${gate ? "" : " A stream that corrects only once there is evidence that it helps would have waited."}`;
}

/** A score with its interval. @param {import("./wire.js").Score} found */
function scored(found) {
  const [low, high] = found.intervals?.brier ?? found.interval ?? [];
  return `${decimals(found.brier ?? found.crps ?? found.squared_error)} (${percent(found.intervals?.level ?? 0.9)} interval ${decimals(low)} to ${decimals(high)})`;
}

/** Whether outcomes are numbers, and forecasts their distributions. @param {Stream} stream */
export function isNumber(stream) {
  return stream.config.set?.name === "Cdf";
}

/** Whether a guarantee says more than that errors have a largest value. @param {number | null} bound @param {boolean} classes */
export function useful(bound, classes) {
  return bound !== null && !(classes && bound >= LARGEST - 1e-9);
}

/** The error over time in a sentence. @param {Mark[]} marks @param {boolean} both whether model and announced differ @param {boolean} classes whether outcomes are classes */
export function errorSummary(marks, both, classes) {
  const last = marks.at(-1);
  if (!last) return "";
  const outcomes = counted(last.rounds, "outcome");
  const model = both && last.model !== null ? `; that of the model’s is ${amount(last.model)}` : "";
  const bound = last.guarantee === null ? "" : useful(last.guarantee, classes) ? ` It is guaranteed to be at most ${amount(last.guarantee)}.` : ` There is no useful guarantee yet after ${outcomes}.`;
  return `After ${outcomes}, the error of the forecasts announced is ${amount(last.announced)} a round${model}.${bound}`;
}

/** That many forecasts wait, where that does harm; or nothing. @param {Stream} stream */
export function slowed({ config, counts }) {
  if (!GUARANTEED.includes(config.forecaster?.name ?? "") || counts.pending < MANY) return "";
  return (
    "This stream forecasts by itself, with a copy of its own for each forecast that waits, and a copy learns from its own rounds: while many wait, it learns slowly. " +
    "Send outcomes soon, or create a stream with a limit on what waits, or one that forecasts by tracker or running-mean, which do not mind."
  );
}

/** The evidence in a few sentences. @param {Record<string, Evidence>} monitors @param {boolean} both */
export function evidenceSummary(monitors, both) {
  const own = monitors.announced ?? monitors.model;
  if (!own) return "This stream has no monitor.";
  const model = both && own !== monitors.model ? monitors.model : null;
  const theirs = model ? ` Against the model’s it is ${evidence(model.value)}.` : "";
  const raised = [
    own.alarm && `${model ? "for those announced " : ""}after ${counted(own.alarm.round, "outcome")}`,
    model?.alarm && `for the model’s after ${counted(model.alarm.round, "outcome")}`,
  ].filter(Boolean);
  const found = raised.length ? ` One was raised ${raised.join(", and one ")}; it stays until you begin anew, even if the evidence falls.` : " There is none.";
  return `The evidence against the forecasts announced is ${evidence(own.value)}, and was ${evidence(own.peak)} at its highest.${theirs} An alarm is raised at ${evidence(own.threshold)}.${found}`;
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
    `Most of it: where ${decimals(worst.forecast)} was forecast, the outcomes were ${decimals(worst.outcome)}, in ${counted(worst.weight, "round")}.`
  );
}

/** Names, as many as fit in a line. @param {string[]} names */
export function short(names) {
  return names.length <= 6 ? names.join(", ") : `${names.slice(0, 5).join(", ")} and ${count(names.length - 5)} more`;
}

/** A forecast, the likeliest classes first. @param {import("./wire.js").Waiting} waiting @param {string[] | null | undefined} classes */
export function forecastInWords({ forecast, quantiles }, classes) {
  if (quantiles) return `median ${amount(quantiles.q50)}, 90 % from ${amount(quantiles.q5)} to ${amount(quantiles.q95)}`;
  const two = (/** @type {number} */ x) => x.toFixed(2);
  if (!classes) return `${forecast.slice(0, 4).map(two).join(", ")}${forecast.length > 4 ? ", …" : ""}`;
  const order = forecast.map((_, i) => i).sort((i, j) => forecast[j] - forecast[i]);
  const named = order.slice(0, 3).map((i) => `${classes[i]} ${two(forecast[i])}`);
  return named.join(", ") + (order.length > 3 ? ", …" : "");
}
