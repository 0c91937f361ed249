// The view of one stream.

import { get, post, Refused, streamPath } from "./api.js";
import { alarmBanner, alarmList } from "./alarms.js";
import { errorCourse, evidenceCourse } from "./course.js";
import { el, fill, say } from "./dom.js";
import { fan } from "./fan.js";
import { follow } from "./live.js";
import { moment } from "./numbers.js";
import { paced } from "./paced.js";
import { guardedButton, problem } from "./parts.js";
import { pendingList } from "./pending.js";
import { reliability } from "./reliability.js";
import { scoresTable } from "./scores.js";
import { usage } from "./usage.js";
import { facts, verdictCard } from "./verdict.js";
import { alarmOf, corrects, isNumber, made } from "./words.js";

/** @typedef {import("./wire.js").Stream} Stream */

const RETRY = 10_000; // ms after what failed
const LOOK = 30_000;
const LAST = 20_000; // outcomes that scores are computed of: some tenths of a second for the server

/** @param {HTMLElement} main @param {string} name */
export async function showStream(main, name) {
  const description = el("p", { class: "lead" });
  const closed = el("p", { class: "note", hidden: true });
  const trouble = el("div");
  const banner = alarmBanner(name, show);
  const [verdict, numbers] = [verdictCard(), facts()];
  const [diagram, fanned, error, evidence] = [reliability(), fan(), errorCourse(), evidenceCourse()];
  const [pending, alarms, scores, use] = [pendingList(name), alarmList(name), scoresTable(() => loadScores()), usage(name)];
  const played = el("code");
  const archive = guardedButton({
    name: "Archive",
    kind: "danger",
    question: `Archive ${name}?`,
    consequence: "It takes no new forecasts. Outcomes of pending ones are still taken, and all that was recorded stays. This cannot be undone here.",
    act: async () => show(await post(streamPath(name, "archive"))),
  });
  const manage = el("section", { class: "card", "aria-labelledby": "manage-title" }, el("h2", { id: "manage-title" }, "This stream"), el("details", {}, el("summary", {}, "The settings, for developers"), el("p", {}, played)), el("p", {}, archive));
  const charts = el("div", { class: "charts" }, el("div", { class: "column" }, diagram.section, fanned.section, alarms.section), el("div", { class: "column" }, error.section, evidence.section));
  const begun = el("div", {}, numbers.section, charts, pending.section, scores.section);
  const content = el("div", { hidden: true }, banner.section, verdict.section, begun, use.section, manage);
  fill(main, el("nav", { "aria-label": "Where you are" }, el("a", { href: "/" }, "Streams")), el("h1", {}, name), description, closed, trouble, content);

  /** @type {Stream | null} */
  let stream = null;

  /** @param {Stream} found */
  function show(found) {
    const first = stream?.counts.learned === 0 && found.counts.learned > 0;
    stream = found;
    if (first) [loadScores, loadCourse].forEach((load) => load()); // what the verdict says, the charts show at once
    content.hidden = false;
    begun.hidden = found.counts.forecasts === 0; // what to do first is all there is to see
    say(description, made(found));
    document.title = `${alarmOf(found) ? "! " : ""}${name} · treecal`;
    alarms.section.hidden = Object.keys(found.monitors).length === 0;
    say(played, found.played);
    closed.hidden = found.archived === null;
    archive.hidden = found.archived !== null;
    if (found.archived !== null) say(closed, `Archived ${moment(found.archived)}: it takes no new forecasts; outcomes of pending ones are still taken.`);
    for (const part of [banner, verdict, numbers, use]) part.update(found);
    for (const part of [diagram, fanned, error, evidence, scores]) part.expect(found.counts.learned > 0);
  }

  /**
   * Read something of the stream. What is refused is shown; that the server is away, the sign above says.
   * @param {(stream: Stream) => Promise<void>} work
   */
  function reading(work) {
    return async () => {
      try {
        if (stream) await work(stream);
        fill(trouble);
      } catch (error) {
        failed(error);
      }
    };
  }

  /** @param {unknown} error */
  function failed(error) {
    if (error instanceof Refused && error.code === "not_found") return missing(main, name);
    fill(trouble, problem(error));
    setTimeout(() => changed(all), RETRY);
  }

  const loadScores = reading(async (of) => {
    const path = streamPath(name, "scores");
    const asked = { ...scores.query(of), last: LAST };
    /** @type {Refused | null} */
    let refusal = null; // such as of too many groups: all rounds together can be had nevertheless
    const found = await get(path, asked).catch((error) => {
      if (!(error instanceof Refused && error.code === "invalid")) throw error;
      refusal = error;
      return get(path, { last: LAST });
    });
    if (scores.query(of).by !== asked.by || scores.query(of).window !== asked.window) return; // another choice was made meanwhile
    diagram.section.hidden = !of.config.classes;
    if (of.config.classes) diagram.update(found, !corrects(of));
    fanned.section.hidden = !isNumber(of);
    if (isNumber(of)) fanned.update(found);
    scores.update(found, refusal);
    if (corrects(of)) verdict.compare(found, of);
  });
  const readScores = paced(5000, loadScores);
  const loadCourse = reading(async (of) => {
    const curve = await get(streamPath(name, "curve"));
    error.update(curve, !corrects(of), Boolean(of.config.classes));
    evidence.update(curve, (stream ?? of).monitors, !corrects(of));
  });
  const readCourse = paced(2000, loadCourse);
  const readPending = paced(2000, reading((of) => pending.update(of)));
  const readAlarms = paced(1000, reading(() => alarms.update()));
  const all = [readCourse, readScores, readPending, readAlarms];
  /** @type {Set<() => void>} */
  const due = new Set(all);
  // The stream comes first: the other parts are shown beside its counts, and must not be older.
  const readStream = paced(1000, async () => {
    try {
      show(await get(streamPath(name)));
    } catch (error) {
      return failed(error);
    }
    for (const read of due) read();
    due.clear();
  });

  /** @param {(() => void)[]} parts */
  function changed(parts) {
    for (const part of parts) due.add(part);
    readStream();
  }

  /** @type {Record<string, (() => void)[]>} */
  const touched = {
    forecast: [readPending],
    outcome: [readCourse, readScores, readPending],
    alarm: [readCourse, readAlarms],
    stream: [readCourse],
  };
  setInterval(() => changed([readPending]), LOOK); // what is due becomes overdue without an event
  follow({ stream: name, onEvent: (kind) => changed(touched[kind] ?? []), onLive: () => changed(all) });
}

/** @param {HTMLElement} main @param {string} name */
function missing(main, name) {
  fill(
    main,
    el("h1", {}, "No such stream"),
    el("p", {}, `There is no stream named ${name}. `, el("a", { href: "/" }, "All streams, and a form to create one"), "."),
  );
}
