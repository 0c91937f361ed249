// Forecasts of numbers over time: the latest announced, and the outcomes.

import { fanChart } from "./charts.js";
import { figure } from "./figure.js";
import { amount, count, moment } from "./numbers.js";

/** @typedef {import("./wire.js").Scores} Scores */

export function fan() {
  const own = figure({
    id: "fan",
    title: "Forecasts and outcomes",
    empty: "Nothing to show yet: send outcomes of forecasts.",
    note: "The dark band holds half of the probability, both bands together 90 %; dots are the outcomes.",
  });
  const chart = fanChart(own.box);
  return {
    section: own.section,
    expect: own.expect,
    /** @param {Scores} scores */
    update(scores) {
      const [found, score] = [scores.fan, scores.announced];
      if (!found?.at.length || !score?.coverage) return own.update(null);
      const levels = Object.keys(found.quantiles);
      own.update({
        summary: `The 90 % interval held ${Math.round(100 * score.coverage["0.9"])} % of ${count(score.rounds)} outcomes, the 50 % interval ${Math.round(100 * score.coverage["0.5"])} %; CRPS ${amount(score.crps ?? 0)}.`,
        keys: [{ name: "announced", kind: "announced" }, { name: "outcomes", kind: "model" }],
        rows: () => [
          [{ name: "outcome at" }, ...levels.map((name) => ({ name, number: true })), { name: "outcome", number: true }],
          found.at.map((at, i) => [moment(at), ...levels.map((name) => amount(found.quantiles[name][i])), amount(found.outcomes[i])]),
        ],
      });
      chart.update(found);
    },
  };
}
