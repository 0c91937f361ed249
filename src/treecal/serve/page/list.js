// The view of all streams: what needs attention comes first.

import { get, streamPage, streamPath } from "./api.js";
import { createForm } from "./create.js";
import { el, fill, prose, say } from "./dom.js";
import { follow } from "./live.js";
import { count } from "./numbers.js";
import { paced } from "./paced.js";
import { badge, problem, time } from "./parts.js";
import { alarmOf, byAttention, level, ofModelOnly, overview, sentence, watch } from "./words.js";

/** @typedef {import("./wire.js").Stream} Stream */

const PAGE = 100;
const MOST = 1000; // streams that are read: of more, those whose names start with the filter
const RETRY = 10_000; // ms after what failed
const AT_ONCE = 10; // streams that are read again together

/** @param {HTMLElement} main */
export async function showStreams(main) {
  /** @type {Map<string, Stream>} */
  const streams = new Map();
  /** @type {Map<string, Row>} */
  const rows = new Map();
  /** @type {Set<string>} */
  const changed = new Set();
  let [more, loaded] = [false, false]; // whether the server has more than are shown; whether all were read once
  let reading = 0;
  let typed = 0;

  const summary = el("p", { class: "lead" });
  const filter = el("input", { id: "filter", type: "search", autocomplete: "off", spellcheck: "false", oninput: onFilter });
  const archived = el("input", { id: "archived", type: "checkbox", onchange: () => load("") });
  const body = el("tbody", { role: "rowgroup" });
  const heads = ["stream", "verdict of what is announced", "forecasts", "pending", "monitor", "last"];
  const listed = el(
    "table",
    { class: "streams", role: "table" },
    el("caption", { class: "unseen" }, "Streams, those that need attention first"),
    el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, heads.map((name, i) => el("th", { scope: "col", role: "columnheader", class: i === 2 || i === 3 ? "number" : null }, name)))),
    body,
  );
  const note = el("p", { class: "empty", role: "status" });
  const trouble = el("div");
  const controls = el(
    "div",
    { class: "row controls" },
    el("div", { class: "grow" }, el("label", { for: "filter" }, "Filter by name or verdict"), filter),
    el("label", { class: "check" }, archived, "archived too"),
  );
  const news = el("p", { class: "unseen", role: "status" });
  const form = createForm();
  document.title = "Streams · treecal";
  fill(main, el("h1", {}, "Streams"), summary, trouble, controls, listed, note, form.element, news);

  /** Read the streams whose names start with `prefix`, and show them as they come. @param {string} prefix */
  async function load(prefix) {
    const own = (reading += 1);
    /** @type {Set<string>} */
    const found = new Set();
    /** @type {string | null} */
    let after = null;
    try {
      do {
        /** @type {import("./wire.js").Streams} */
        const page = await get("/v1/streams", { after, limit: PAGE, archived: archived.checked, prefix: prefix || null });
        if (own !== reading) return; // another reading was begun
        for (const stream of page.streams) streams.set(stream.name, stream);
        for (const stream of page.streams) found.add(stream.name);
        after = page.next;
        arrange();
      } while (after !== null && found.size < MOST);
    } catch (error) {
      fill(trouble, problem(error));
      setTimeout(reload, RETRY);
      return;
    }
    fill(trouble);
    if (!prefix) {
      more = after !== null;
      for (const name of streams.keys()) if (!found.has(name)) streams.delete(name);
    }
    if (streams.size === 0) form.open();
    loaded = true;
    arrange();
    if (more && !prefix && filter.value) onFilter(); // typed while it was not known that there are more
  }

  function arrange() {
    const wanted = filter.value.trim().toLowerCase();
    const shown = [...streams.values()].filter((stream) => matches(stream, wanted)).sort(byAttention);
    say(summary, streams.size ? overview([...streams.values()]) : "");
    for (const stream of shown) {
      const row = rows.get(stream.name) ?? new Row();
      rows.set(stream.name, row);
      row.update(stream);
    }
    const order = shown.map((stream) => /** @type {Row} */ (rows.get(stream.name)).element);
    // A row that moves would lose the focus: while the focus is in the table, only what is new or gone moves.
    const held = body.contains(document.activeElement) && order.length === body.rows.length;
    if (!held && order.some((row, i) => body.rows[i] !== row)) fill(body, order);
    else if (order.length !== body.rows.length) fill(body, order);
    listed.hidden = order.length === 0;
    controls.hidden = streams.size === 0 && !filter.value && !archived.checked;
    say(note, order.length ? (more ? `These are the first ${count(MOST)} streams by name. Type how a name begins to find others.` : "") : nothing());
  }

  function onFilter() {
    arrange();
    clearTimeout(typed);
    if (more) typed = setTimeout(() => load(filter.value.trim()), 300); // once the typing rests
  }

  function nothing() {
    if (!loaded) return "";
    if (streams.size || filter.value) return "No stream matches the filter.";
    return "There is no stream yet. Create the first one here, then send it forecasts.";
  }

  const reload = paced(500, () => load(more ? filter.value.trim() : ""));
  const readChanged = paced(2000, async () => {
    const names = [...changed].slice(0, AT_ONCE);
    for (const name of names) changed.delete(name);
    const found = await Promise.allSettled(names.map((name) => get(streamPath(name))));
    for (const answer of found) {
      if (answer.status === "rejected") continue;
      if (answer.value.archived === null || archived.checked) streams.set(answer.value.name, answer.value);
      else streams.delete(answer.value.name);
    }
    arrange();
    if (changed.size) readChanged();
  });
  const redraw = paced(500, arrange);

  /** @param {string} kind @param {any} data */
  function onEvent(kind, data) {
    const stream = streams.get(data.stream);
    if (stream && kind === "forecast") Object.assign(stream.counts, { forecasts: data.rounds, pending: data.pending });
    if (stream && kind === "outcome") stream.counts.learned = data.learned;
    if (kind === "alarm") say(news, `Alarm in stream ${data.stream}.`);
    if (!stream && kind !== "stream") return;
    if (stream && kind !== "stream") stream.last = Date.now() / 1000;
    changed.add(data.stream);
    redraw();
    readChanged();
  }

  follow({ stream: null, onEvent, onLive: reload });
  setInterval(redraw, 15_000); // what was a minute ago is two by now
  setInterval(reload, 60_000); // and what is due becomes overdue without an event
}

/** A row of the table, which keeps its place in the document while its numbers change. */
class Row {
  constructor() {
    const cell = (/** @type {string} */ name, kind = "") => el("td", { role: "cell", class: kind, "data-name": name });
    this.link = el("a");
    this.archived = el("span", { class: "soft" });
    this.verdict = cell("verdict");
    this.forecasts = cell("forecasts", "number");
    this.pending = cell("pending", "number");
    this.monitor = cell("monitor");
    this.last = cell("last", "last");
    this.element = el("tr", { role: "row" }, el("th", { scope: "row", role: "rowheader" }, this.link, this.archived), this.verdict, this.forecasts, this.pending, this.monitor, this.last);
    this.shown = "";
  }

  /** @param {Stream} stream */
  update(stream) {
    const { name, counts } = stream;
    const shown = JSON.stringify([level(stream), sentence(stream), counts, watch(stream), stream.archived]);
    fill(this.last, time(stream.last));
    if (shown === this.shown) return;
    this.shown = shown;
    this.link.href = streamPage(name);
    say(this.link, name);
    say(this.archived, stream.archived === null ? "" : " archived");
    fill(this.verdict, badge(level(stream)), el("span", { class: "sentence" }, prose(sentence(stream))));
    fill(this.forecasts, count(counts.forecasts));
    fill(this.pending, count(counts.pending), counts.overdue > 0 && el("span", { class: "overdue" }, `${count(counts.overdue)} overdue`));
    const sign = alarmOf(stream) && badge(ofModelOnly(stream) ? "model alarm" : "alarm");
    fill(this.monitor, sign, el("span", { class: "sentence" }, watch(stream)));
  }
}

/** @param {Stream} stream @param {string} wanted */
function matches(stream, wanted) {
  return `${stream.name} ${level(stream)} ${alarmOf(stream) ? "alarm" : ""} ${watch(stream)}`.toLowerCase().includes(wanted);
}
