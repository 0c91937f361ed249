// The reliability diagram of a stream, for the most likely class or one that is chosen.

import { reliabilityChart } from "./charts.js";
import { el, fill } from "./dom.js";
import { figure } from "./figure.js";
import { amount, count, decimals } from "./numbers.js";
import { reliabilitySummary } from "./words.js";

/**
 * @typedef {import("./wire.js").Bins} Bins
 * @typedef {import("./wire.js").Scores} Scores
 */

const Z = 1.96; // 95 %
const TOP = "";

export function reliability() {
  const chooser = el("select", { id: "class-chooser", onchange: () => draw() });
  const own = figure({
    id: "reliability",
    title: "Reliability",
    empty: "Nothing to compare yet: send outcomes of forecasts, and each bin of forecasts is compared with its outcomes.",
    controls: [el("p", { class: "row controls" }, el("label", { for: "class-chooser" }, "Class"), chooser)],
    note: "On the diagonal, outcomes are as frequent as forecast. Larger marks hold more rounds, hollow ones fewer than 30; bars are 95 % intervals (Wilson).",
  });
  const chart = reliabilityChart(own.box, point);
  /** @type {Scores | null} */
  let scores = null;
  let single = false;
  /** @type {string[]} */
  let points = [];

  /** @param {number | null} index */
  function point(index) {
    own.point(index === null ? "" : (points[index] ?? ""));
  }

  /** @param {"model" | "announced"} of @returns {Bins | null} */
  function bins(of) {
    const found = scores?.[of];
    if (!found || (single && of === "model")) return null;
    return chooser.value === TOP ? found.top_label : (found.classes[chooser.value.slice(1)] ?? null);
  }

  function draw() {
    const [model, announced] = [bins("model"), bins("announced")];
    if (!model && !announced) return own.update(null);
    const what = chooser.value === TOP ? "the most likely class" : chooser.value.slice(1);
    const over = scores && scores.rounds < scores.of ? ` and the last ${count(scores.rounds)} outcomes` : "";
    const shown = [
      { of: "model", name: "the model", found: model, colour: "--model", square: true },
      { of: "announced", name: single && scores?.model ? "announced, as the model has it" : "announced", found: announced, colour: "--blue", square: false },
    ].flatMap(({ found, ...rest }) => (found ? [{ ...rest, bins: found.bins.map((bin) => ({ ...bin, edges: `${amount(bin.low)} to ${amount(bin.high)}`, ...wilson(bin.outcome, bin.weight) })) }] : []));
    own.update({
      summary: reliabilitySummary(what, over, announced, model),
      keys: [...shown.map((cloud) => ({ name: cloud.name, kind: cloud.of })), { name: "calibrated", kind: "diagonal" }],
      rows: () => [
        [{ name: "bin" }, { name: "of" }, { name: "mean forecast", number: true }, { name: "mean outcome", number: true }, { name: "95 % interval", number: true }, { name: "rounds", number: true }],
        shown.flatMap((cloud) =>
          cloud.bins.map((bin) => [bin.edges, cloud.name, decimals(bin.forecast), decimals(bin.outcome), `${decimals(bin.low)} to ${decimals(bin.high)}`, count(bin.weight)]),
        ),
      ],
    });
    const all = shown.flatMap((cloud) => cloud.bins.map((bin) => ({ ...bin, name: cloud.name }))).sort((a, b) => a.forecast - b.forecast);
    points = all.map((bin) => `${bin.name}: ${decimals(bin.forecast)} forecast, ${decimals(bin.outcome)} observed (${decimals(bin.low)} to ${decimals(bin.high)}), ${count(bin.weight)} rounds`);
    chart.update(shown);
  }

  return {
    section: own.section,
    expect: own.expect,
    /** @param {Scores} found @param {boolean} same whether the model's forecasts are announced as they are */
    update(found, same) {
      [scores, single] = [found, same];
      const names = Object.keys((found.announced ?? found.model)?.classes ?? {});
      if (chooser.options.length !== names.length + 1) {
        fill(chooser, el("option", { value: TOP }, "the most likely"), names.map((name) => el("option", { value: `=${name}` }, name)));
      }
      draw();
    },
  };
}

/** The interval of Wilson around a frequency. @param {number} rate @param {number} n */
function wilson(rate, n) {
  const middle = (rate + Z ** 2 / (2 * n)) / (1 + Z ** 2 / n);
  const half = (Z / (1 + Z ** 2 / n)) * Math.sqrt((rate * (1 - rate)) / n + Z ** 2 / (4 * n ** 2));
  return { low: Math.max(middle - half, 0), high: Math.min(middle + half, 1) };
}
