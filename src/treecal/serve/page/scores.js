// Scores by tag or by window of time, in a table.

import { get, streamPath } from "./api.js";
import { el, fill, table } from "./dom.js";
import { count, decimals } from "./numbers.js";
import { badge, problem } from "./parts.js";
import { plays } from "./words.js";

/** @typedef {import("./wire.js").Group} Group */

const WINDOWS = ["minute", "hour", "day", "week", "month"];
const MOST = 200; // rows

/** @param {string} name of the stream */
export function scoresTable(name) {
  const chooser = el("select", { id: "scores-by", onchange: () => load() });
  const rows = el("div");
  const section = el(
    "section",
    { class: "card", "aria-labelledby": "scores-title" },
    el("h2", { id: "scores-title" }, "Scores"),
    el("p", { class: "row controls" }, el("label", { for: "scores-by" }, "By"), chooser),
    rows,
  );
  /** @type {import("./wire.js").Stream | null} */
  let stream = null;

  async function load() {
    if (!stream) return;
    if (stream.counts.learned === 0) return fill(rows, el("p", { class: "empty" }, "Scores need outcomes. Forecasts with tags can be told apart here."));
    const [by, window] = chooser.value.split(" ");
    try {
      /** @type {import("./wire.js").Scores} */
      const found = await get(streamPath(name, "scores"), { by: by === "time" ? "time" : by.slice(1), window: window ?? null });
      const groups = by === "time" ? found.groups.slice(-MOST).reverse() : found.groups.slice(0, MOST);
      if (!groups.length) return fill(rows, el("p", { class: "empty" }, "No round with an outcome has this tag."));
      fill(rows, table(`Scores by ${by === "time" ? window : by.slice(1)}`, columns(), groups.map((group) => cells(group, by === "time"))), left(found.groups.length));
    } catch (error) {
      fill(rows, problem(error));
    }
  }

  function columns() {
    const both = stream && plays(stream);
    const numbers = stream?.config.classes
      ? ["ECE", "by chance", "Brier", ...(both ? ["the model’s"] : []), "accuracy", "rounds"]
      : ["squared error", ...(both ? ["the model’s"] : []), "rounds"];
    const first = [{ name: chooser.selectedOptions[0]?.textContent ?? "" }, ...(stream?.config.classes ? [{ name: "verdict" }] : [])];
    return [...first, ...numbers.map((column) => ({ name: column, number: true }))];
  }

  /** @param {Group} group @param {boolean} times @returns {import("./dom.js").Child[]} */
  function cells(group, times) {
    const label = group.by === null ? "none" : times ? start(group.by) : group.by;
    const own = group.announced ?? group.model;
    const model = stream && plays(stream) ? group.model : undefined;
    const theirs = model === undefined ? [] : [decimals(model?.brier ?? model?.squared_error)];
    if (!own) return [label];
    if (!own.verdict) return [label, decimals(own.squared_error), ...theirs, count(own.rounds)];
    const { ece, chance } = own.top_label;
    return [label, badge(own.verdict.level), decimals(ece), decimals(chance.mean), decimals(own.brier), ...theirs, decimals(own.accuracy), count(own.rounds)];
  }

  return {
    section,
    /** @param {import("./wire.js").Stream} found */
    async update(found) {
      const first = stream === null;
      stream = found;
      if (first) {
        fill(chooser, (found.config.tags ?? []).map((tag) => el("option", { value: `=${tag}` }, tag)), WINDOWS.map((window) => el("option", { value: `time ${window}` }, window)));
        if (!found.config.tags?.length) chooser.value = "time day";
      }
      await load();
    },
  };
}

/** The start of a window, which the server has in UTC. @param {string} text */
function start(text) {
  const [day, hour] = text.split("T");
  return hour === undefined ? day : `${day} ${hour.includes(":") ? hour : `${hour}:00`} UTC`;
}

/** @param {number} found */
function left(found) {
  return found > MOST && el("p", { class: "soft" }, `${count(MOST)} of ${count(found)} are shown.`);
}
