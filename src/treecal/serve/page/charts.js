// Charts on uPlot: lines on logarithmic axes, and reliability diagrams. Colours come from the style sheet.

import uPlot from "./vendor/uplot-1.6.32/uPlot.esm.js";
import { count, power } from "./numbers.js";

/**
 * @typedef {object} Line
 * @property {string} name
 * @property {string} colour the name of a custom property
 * @property {number[]} [dash]
 *
 * @typedef {object} Limit a horizontal line
 * @property {number} value
 * @property {string} words
 * @property {number} room how many decades are shown above and below it at most: where it is crossed stays in sight
 *
 * @typedef {object} Cloud the bins of a reliability diagram
 * @property {string} name
 * @property {string} colour
 * @property {boolean} square marks are squares, not circles: colour is not all that tells them apart
 * @property {{forecast: number, outcome: number, weight: number, low: number, high: number}[]} bins
 */

const FONT = "12px system-ui, sans-serif";
const THIN = 30; // rows

/** A chart that fits its box, and is drawn anew when the colours of the page change. */
class Chart {
  /** @param {HTMLElement} box @param {(width: number) => any} options @param {any[]} data */
  constructor(box, options, data) {
    this.box = box;
    this.options = options;
    this.data = data;
    /** @type {any} */
    this.plot = null;
    new ResizeObserver(() => this.fit()).observe(box);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  fit() {
    const width = Math.floor(this.box.clientWidth);
    if (width === 0 || (this.plot && this.plot.width === width)) return;
    if (this.plot) this.plot.setSize({ width, height: this.options(width).height });
    else this.draw();
  }

  draw() {
    const width = Math.floor(this.box.clientWidth);
    if (width === 0) return;
    this.plot?.destroy();
    this.plot = new /** @type {any} */ (uPlot)(this.options(width), this.data, this.box);
  }

  /** @param {any[]} data */
  update(data) {
    this.data = data;
    if (this.plot) this.plot.setData(data);
    else this.fit();
  }
}

/**
 * Lines over rounds, both axes logarithmic.
 * @param {HTMLElement} box
 * @param {object} options
 * @param {Line[]} options.lines
 * @param {string} options.label of the vertical axis
 * @param {(index: number | null) => void} options.onPoint where the pointer is
 */
export function lineChart(box, { lines, label, onPoint }) {
  /** @type {Limit | null} */
  let limit = null;
  const chart = new Chart(box, options, [[], ...lines.map(() => [])]);

  /** @param {number} width */
  function options(width) {
    return {
      width,
      height: 240,
      legend: { show: false },
      cursor: { drag: { x: false, y: false }, y: false, points: { size: 7 } },
      scales: {
        x: { time: false, range: horizontal },
        y: { range: (/** @type {any} */ _, /** @type {number | null} */ low, /** @type {number | null} */ high) => vertical(low, high) },
      },
      axes: [
        { ...axis(), label: "outcomes", splits: decades(55), values: tenths(count), size: 30 },
        { ...axis(), label, splits: decades(28), values: tenths(short), size: 60 },
      ],
      series: [
        {},
        ...lines.map((line) => ({
          label: line.name,
          stroke: colour(line.colour),
          width: 2,
          dash: line.dash,
          spanGaps: true,
          points: { show: !line.dash && lines.length < 4, size: 4 },
        })),
      ],
      hooks: {
        setCursor: [(/** @type {any} */ u) => onPoint(u.cursor.left < 0 ? null : u.cursor.idx)],
        drawSeries: [(/** @type {any} */ u, /** @type {number} */ i) => i === 1 && drawLimit(u)],
      },
    };
  }

  /** A decade at least, of the data themselves: of a single point the chart would make up a range of its own. @returns {[number, number]} */
  function horizontal() {
    const [at] = chart.data;
    const low = at[0] ?? 0;
    return [low, Math.max(at.at(-1) ?? 0, low + 1)];
  }

  /** @param {number | null} low @param {number | null} high @returns {[number, number]} */
  function vertical(low, high) {
    if (!limit) return low === null || high === null ? [-1, 0] : spread(low, high, 0.08);
    const line = Math.log10(limit.value);
    return spread(Math.max(Math.min(low ?? line, line), line - limit.room), Math.min(Math.max(high ?? line, line), line + limit.room), 0.08);
  }

  /** @param {any} u */
  function drawLimit(u) {
    if (!limit) return;
    const y = u.valToPos(Math.log10(limit.value), "y", true);
    const { ctx, bbox } = u;
    ctx.save();
    ctx.strokeStyle = ctx.fillStyle = colour("--ink");
    ctx.lineWidth = 1.5 * devicePixelRatio;
    ctx.setLineDash([6 * devicePixelRatio, 4 * devicePixelRatio]);
    ctx.beginPath();
    ctx.moveTo(bbox.left, y);
    ctx.lineTo(bbox.left + bbox.width, y);
    ctx.stroke();
    ctx.font = scaled(FONT);
    ctx.textAlign = "left";
    ctx.textBaseline = y - bbox.top < 18 * devicePixelRatio ? "top" : "bottom";
    ctx.fillText(limit.words, bbox.left + 6 * devicePixelRatio, y + (ctx.textBaseline === "top" ? 4 : -3) * devicePixelRatio);
    ctx.restore();
  }

  return {
    /**
     * @param {number[]} rounds
     * @param {(number | null)[][]} values one list for each line
     * @param {Limit | null} [at]
     */
    update(rounds, values, at = null) {
      limit = at;
      chart.update([rounds.map(Math.log10), ...values.map((list) => list.map(logarithm))]);
    },
  };
}

/**
 * A reliability diagram: the mean outcome of each bin against its mean forecast.
 * @param {HTMLElement} box
 * @param {(index: number | null) => void} onPoint the place among all bins in order of their forecasts
 */
export function reliabilityChart(box, onPoint) {
  /** @type {Cloud[]} */
  let clouds = [];
  const chart = new Chart(box, options, [[], []]);

  /** @param {number} width */
  function options(width) {
    const unit = { range: [0, 1] };
    const ticks = { splits: () => [0, 0.2, 0.4, 0.6, 0.8, 1], values: (/** @type {any} */ _, /** @type {number[]} */ at) => at.map((x) => x.toFixed(1)) };
    return {
      width,
      height: width,
      legend: { show: false },
      cursor: { drag: { x: false, y: false }, points: { show: false } },
      scales: { x: { time: false, ...unit }, y: unit },
      axes: [
        { ...axis(), ...ticks, label: "forecast", size: 30 },
        { ...axis(), ...ticks, label: "mean outcome", size: 40 },
      ],
      series: [{}, { paths: () => null, points: { show: false } }],
      hooks: {
        setCursor: [(/** @type {any} */ u) => onPoint(u.cursor.left < 0 ? null : u.cursor.idx)],
        draw: [drawBins],
      },
    };
  }

  /** @param {any} u */
  function drawBins(u) {
    const { ctx } = u;
    const px = devicePixelRatio;
    const at = (/** @type {number} */ x, /** @type {number} */ y) => [u.valToPos(x, "x", true), u.valToPos(y, "y", true)];
    ctx.save();
    ctx.strokeStyle = colour("--soft");
    ctx.setLineDash([4 * px, 4 * px]);
    ctx.lineWidth = px;
    stroke(ctx, at(0, 0), at(1, 1));
    ctx.setLineDash([]);
    for (const cloud of clouds) {
      const most = Math.max(...cloud.bins.map((bin) => bin.weight));
      ctx.strokeStyle = ctx.fillStyle = colour(cloud.colour);
      for (const bin of cloud.bins) {
        const [x, y] = at(bin.forecast, bin.outcome);
        ctx.lineWidth = 1.25 * px;
        ctx.globalAlpha = 0.7;
        stroke(ctx, at(bin.forecast, bin.low), at(bin.forecast, bin.high));
        ctx.globalAlpha = 1;
        const r = (2.5 + 5 * Math.sqrt(bin.weight / most)) * px; // the area is the rows
        ctx.beginPath();
        if (cloud.square) ctx.rect(x - 0.9 * r, y - 0.9 * r, 1.8 * r, 1.8 * r);
        else ctx.arc(x, y, r, 0, 2 * Math.PI);
        if (bin.weight < THIN) {
          ctx.fillStyle = colour("--paper");
          ctx.fill();
          ctx.fillStyle = colour(cloud.colour);
          ctx.stroke();
        } else ctx.fill();
      }
    }
    ctx.restore();
  }

  return {
    /** @param {Cloud[]} found */
    update(found) {
      clouds = found;
      const all = found.flatMap((cloud) => cloud.bins).sort((a, b) => a.forecast - b.forecast);
      chart.update([all.map((bin) => bin.forecast), all.map((bin) => bin.outcome)]);
    },
  };
}

/**
 * Quantiles of forecasts of numbers as bands, one forecast after another, and outcomes as dots.
 * @param {HTMLElement} box
 */
export function fanChart(box) {
  /** @type {import("./wire.js").Fan} */
  let fan = { at: [], outcomes: [], quantiles: {} };
  const chart = new Chart(box, options, [[], [], []]);

  /** @param {number} width */
  function options(width) {
    const quiet = { paths: () => null, points: { show: false } };
    return {
      width,
      height: 240,
      legend: { show: false },
      cursor: { drag: { x: false, y: false }, points: { show: false } },
      scales: { x: { time: false } },
      axes: [{ ...axis(), label: "the latest outcomes", size: 30 }, { ...axis(), label: "number", size: 60 }],
      series: [{}, quiet, quiet],
      hooks: { draw: [draw] },
    };
  }

  /** @param {any} u */
  function draw(u) {
    const { ctx } = u;
    const { q5, q25, q50, q75, q95 } = fan.quantiles;
    if (!q50) return;
    const at = (/** @type {number} */ i, /** @type {number} */ y) => [u.valToPos(i + 1, "x", true), u.valToPos(y, "y", true)];
    ctx.save();
    ctx.fillStyle = ctx.strokeStyle = colour("--blue");
    for (const [low, high] of [[q5, q95], [q25, q75]]) {
      ctx.globalAlpha = 0.25;
      ctx.beginPath();
      low.forEach((y, i) => ctx.lineTo(...at(i, y)));
      for (let i = high.length - 1; i >= 0; i--) ctx.lineTo(...at(i, high[i]));
      ctx.fill();
    }
    ctx.globalAlpha = 1;
    ctx.lineWidth = 1.5 * devicePixelRatio;
    ctx.beginPath();
    q50.forEach((y, i) => ctx.lineTo(...at(i, y)));
    ctx.stroke();
    ctx.fillStyle = colour("--model");
    fan.outcomes.forEach((y, i) => {
      ctx.beginPath();
      ctx.arc(...at(i, y), 2 * devicePixelRatio, 0, 2 * Math.PI);
      ctx.fill();
    });
    ctx.restore();
  }

  return {
    /** @param {import("./wire.js").Fan} found */
    update(found) {
      fan = found;
      const low = found.outcomes.map((y, i) => Math.min(y, found.quantiles.q5[i]));
      const high = found.outcomes.map((y, i) => Math.max(y, found.quantiles.q95[i]));
      chart.update([found.at.map((_, i) => i + 1), low, high]);
    },
  };
}

/** @param {any} ctx @param {number[]} from @param {number[]} to */
function stroke(ctx, from, to) {
  ctx.beginPath();
  ctx.moveTo(from[0], from[1]);
  ctx.lineTo(to[0], to[1]);
  ctx.stroke();
}

/** What all axes share. */
function axis() {
  const ink = colour("--soft");
  const grid = { stroke: colour("--line"), width: 1 };
  return { stroke: ink, font: FONT, labelFont: FONT, labelSize: 18, grid, ticks: { ...grid, size: 4 }, gap: 4 };
}

/** @param {string} property */
function colour(property) {
  return getComputedStyle(document.documentElement).getPropertyValue(property).trim();
}

/** A font for the canvas's own pixels. @param {string} font */
function scaled(font) {
  return font.replace(/^(\d+)px/, (_, size) => `${Number(size) * devicePixelRatio}px`);
}

/** @param {number | null} x */
function logarithm(x) {
  return x !== null && x > 0 && Number.isFinite(x) ? Math.log10(x) : null;
}

/** A range with some room, half a decade at least. @param {number} low @param {number} high @param {number} room @returns {[number, number]} */
function spread(low, high, room) {
  const wide = Math.max(high - low, 0.5);
  const middle = (low + high) / 2;
  return high - low < 0.5 && room ? [middle - wide / 2 - room, middle + wide / 2 + room] : [low - room * wide, Math.max(high + room * wide, low + 0.5)];
}

/**
 * Where a logarithmic axis has its marks: powers of ten, as many as there is room for; also 2 and 5 where they are few, and all between where there is no other.
 * @param {number} space the least pixels between marks
 */
function decades(space) {
  return (/** @type {any} */ u, /** @type {number} */ side, /** @type {number} */ low, /** @type {number} */ high) => {
    const pixels = (side === 0 ? u.bbox.width : u.bbox.height) / devicePixelRatio;
    const most = Math.max(Math.floor(pixels / space), 2);
    const [first, last] = [Math.floor(low), Math.ceil(high)];
    const inside = (/** @type {number} */ y) => y >= low - 1e-9 && y <= high + 1e-9;
    for (const steps of [[1, 2, 5], [1, 3], [1], range(1, 9, 1)]) {
      const found = range(first, last, 1).flatMap((n) => steps.map((step) => n + Math.log10(step))).filter(inside);
      if (found.length <= most && found.length > 1) return found;
    }
    const step = Math.ceil((last - first) / most) || 1;
    return range(Math.ceil(first / step) * step, last, step).filter(inside);
  };
}

/** @param {number} first @param {number} last @param {number} step */
function range(first, last, step) {
  return Array.from({ length: Math.max(Math.floor((last - first) / step) + 1, 0) }, (_, i) => first + i * step);
}

/** Labels of marks that are logarithms. @param {(x: number) => string} write */
function tenths(write) {
  return (/** @type {any} */ _, /** @type {number[]} */ at) => at.map((y) => (Math.abs(y) >= 5 ? power(Math.round(y)) : write(Number((10 ** y).toPrecision(1)))));
}

/** @param {number} x */
function short(x) {
  return x >= 1 ? count(x) : String(x);
}
