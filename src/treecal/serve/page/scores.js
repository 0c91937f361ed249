// Scores by tag or by window of time, in a table.

import { el, fill, table } from "./dom.js";
import { count, decimals } from "./numbers.js";
import { badge, problem } from "./parts.js";
import { corrects, isNumber } from "./words.js";

/** @typedef {import("./wire.js").Group} Group */

const WINDOWS = ["minute", "hour", "day", "week", "month"];
const MOST = 200; // rows
const EMPTY = "Scores need outcomes. Forecasts with tags can be told apart here.";
const NOTE =
  "ECE, and what chance would show, are of the most likely class; a verdict looks at every class, and at its row alone: " +
  "of twenty rows that are calibrated, one is called off.";

/**
 * @param {() => void} onChoice called when the reader wants them by something else
 */
export function scoresTable(onChoice) {
  const chooser = el("select", { id: "scores-by", onchange: onChoice });
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

  function columns() {
    const both = stream && corrects(stream);
    const numbers = stream?.config.classes
      ? ["ECE", "by chance", "Brier", ...(both ? ["the model’s"] : []), "accuracy", "rounds"]
      : stream && isNumber(stream)
        ? ["CRPS", ...(both ? ["the model’s"] : []), "50 % interval", "90 % interval", "bias", "rounds"]
        : ["squared error", ...(both ? ["the model’s"] : []), "rounds"];
    const first = [{ name: chooser.selectedOptions[0]?.textContent ?? "" }, ...(stream?.config.classes ? [{ name: "verdict" }] : [])];
    return [...first, ...numbers.map((column) => ({ name: column, number: true }))];
  }

  /** @param {Group} group @param {boolean} times @returns {import("./dom.js").Child[]} */
  function cells(group, times) {
    const label = group.by === null ? "none" : times ? start(group.by) : group.by;
    const own = group.announced ?? group.model;
    const model = stream && corrects(stream) ? group.model : undefined;
    const theirs = model === undefined ? [] : [decimals(model?.brier ?? model?.crps ?? model?.squared_error)];
    if (!own) return [label];
    if (own.coverage) {
      const held = (/** @type {string} */ share) => `${Math.round(100 * (own.coverage?.[share] ?? 0))} %`;
      return [label, decimals(own.crps), ...theirs, held("0.5"), held("0.9"), decimals(own.bias), count(own.rounds)];
    }
    if (!own.verdict) return [label, decimals(own.squared_error), ...theirs, count(own.rounds)];
    const { ece, chance } = own.top_label;
    return [label, badge(own.verdict.level), decimals(ece), decimals(chance.mean), decimals(own.brier), ...theirs, decimals(own.accuracy), count(own.rounds)];
  }

  return {
    section,
    /** @param {boolean} some whether there are outcomes */
    expect(some) {
      if (!rows.querySelector("table, .problem")) fill(rows, el("p", { class: "empty" }, some ? "Being read …" : EMPTY));
    },
    /** What to ask for. @param {import("./wire.js").Stream} found @returns {{by: string, window: string | null}} */
    query(found) {
      if (stream === null) {
        const tags = found.config.tags ?? [];
        fill(chooser, tags.map((tag) => el("option", { value: `=${tag}` }, tag)), WINDOWS.map((window) => el("option", { value: `time ${window}` }, window)));
        if (!tags.length) chooser.value = "time day";
      }
      stream = found;
      const [by, window] = chooser.value.split(" ");
      return by === "time" ? { by, window } : { by: chooser.value.slice(1), window: null };
    },
    /** @param {import("./wire.js").Scores} found @param {Error | null} refusal */
    update(found, refusal) {
      if (refusal) return fill(rows, problem(refusal));
      if (found.of === 0) return fill(rows, el("p", { class: "empty" }, EMPTY));
      const times = chooser.value.startsWith("time ");
      const groups = times ? found.groups.slice(-MOST).reverse() : found.groups.slice(0, MOST);
      const cut = found.groups.length > MOST ? ` ${count(MOST)} of ${count(found.groups.length)} are shown.` : "";
      const part = found.rounds < found.of ? ` They are of the last ${count(found.rounds)} outcomes of ${count(found.of)}.` : "";
      fill(
        rows,
        table(`Scores by ${chooser.selectedOptions[0].textContent}`, columns(), groups.map((group) => cells(group, times))),
        actions(found.announced?.payoff),
        el("p", { class: "soft" }, `${found.announced?.verdict ? NOTE : ""}${cut}${part}`),
      );
    },
  };
}

/** What was done with each action that forecasts called for. @param {import("./wire.js").Payoff | undefined} payoff */
function actions(payoff) {
  if (!payoff) return [];
  const columns = [{ name: "action" }, ...["rounds", "cost a round", "better", "would save", "90 % interval"].map((name) => ({ name, number: true }))];
  const rows = payoff.actions.map((each) => [
    String(each.action),
    count(each.rows),
    decimals(each.cost),
    each.better === each.action ? "" : String(each.better),
    decimals(each.saved),
    `${decimals(each.interval[0])} to ${decimals(each.interval[1])}`,
  ]);
  return [el("p", {}, `Who acts on the forecasts announced pays ${decimals(payoff.cost)} a round. Action by action:`), table("Action by action", columns, rows)];
}

/** The start of a window, which the server has in UTC. @param {string} text */
function start(text) {
  const [day, hour] = text.split("T");
  return hour === undefined ? day : `${day} ${hour.includes(":") ? hour : `${hour}:00`} UTC`;
}
