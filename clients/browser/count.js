// The audit's counting rule, as `treecal.auditing` has it: sums of whole numbers, so the digits depend on no order of rows.
// A probability is rounded to a multiple of 2^-51 by adding 2 and taking it away; a sum is kept as ones and a rest below 1.
"use strict";

const MAGIC = 1.5 * 2 ** -6; // rounds the squares' rests to multiples of 2^-58
const LOG_SCALE = 1024;
const ROUNDING = 1e-6;
const SAME = 1e-7; // as float32 has it
const BINS = 10;
const NORMAL_95 = 1.6448536269514722;
const UNSEEN = -Math.log((1 - 0.9) / 2); // what was never seen in n rows may come in so many of n

/** The sum of numbers, rounded once: Shewchuk's partial sums, as Python's `math.fsum`. */
function sum(numbers) {
  const parts = [];
  for (let x of numbers) {
    let kept = 0;
    for (let y of parts) {
      if (Math.abs(x) < Math.abs(y)) [x, y] = [y, x];
      const high = x + y;
      const low = y - (high - x);
      if (low !== 0) parts[kept++] = low;
      x = high;
    }
    parts.length = kept;
    parts.push(x);
  }
  let n = parts.length - 1;
  let high = n < 0 ? 0 : parts[n];
  let low = 0;
  while (n > 0 && low === 0) {
    n -= 1;
    const x = high;
    high = x + parts[n];
    low = parts[n] - (high - x);
  }
  // Half of a last digit goes to where the rest is.
  if (n > 0 && low < 0 === parts[n - 1] < 0 && low !== 0) {
    const twice = low * 2;
    const other = high + twice;
    if (twice === other - high) high = other;
  }
  return high;
}

/** A number in decimals, halves to the even digit, as Python writes and rounds it. */
function decimal(x, digits) {
  const twice = x * 2 ** (digits + 1);
  if (!Number.isInteger(twice) || twice % 2 === 0) return x.toFixed(digits);
  const scaled = (BigInt(Math.abs(twice)) * 10n ** BigInt(digits)) / 2n ** BigInt(digits + 1);
  const even = scaled % 2n === 0n ? scaled : scaled + 1n;
  const text = even.toString().padStart(digits + 1, "0");
  return `${x < 0 ? "-" : ""}${text.slice(0, text.length - digits)}.${text.slice(text.length - digits)}`;
}

/** A quotient of whole numbers, rounded once. */
function quotient(numerator, denominator) {
  if (numerator === 0n) return 0;
  const shift = BigInt(Math.max(0, 66 + denominator.toString(2).length - numerator.toString(2).length));
  const whole = (numerator << shift) / denominator;
  const rest = (numerator << shift) % denominator;
  return Number(rest === 0n ? whole : whole | 1n) * 2 ** -Number(shift);
}

/** The mean of sums in two parts, to the 15 decimals that are correct. */
function mean(ones, rests, rows) {
  let total = 0n;
  for (const part of ones) total += BigInt(part) << 51n;
  for (const part of rests) total += BigInt(part * 2 ** 51);
  return rows === 0 ? NaN : Number(decimal(quotient(total, BigInt(rows) << 51n), 15));
}

/** To what probabilities were rounded, as far as the first rows tell. */
function writtenTo(columns) {
  const p = columns.flatMap((column) => [...column.subarray(0, 1000)]).filter((each) => Math.abs(each) <= 2);
  for (let digits = 1; digits < 6; digits += 1) {
    const scale = 10 ** digits;
    if (p.every((each) => Math.abs(each - halfEven(each * scale) / scale) < SAME)) return digits > 1 ? 10 ** -digits : ROUNDING;
  }
  return ROUNDING;
}

const halfEven = (x) => (Math.abs(x % 1) === 0.5 ? 2 * Math.round(x / 2) : Math.round(x));

/** Which rows can be counted, and how many cannot, with the first few and why. */
function check(columns, outcomes) {
  const rows = outcomes.length;
  const within = writtenTo(columns) * Math.max(1, columns.length / 2);
  const valid = new Uint8Array(rows);
  const invalid = { count: 0, first: [] };
  for (let row = 0; row < rows; row += 1) {
    let total = 0;
    let size = 0;
    for (const column of columns) {
      total += column[row];
      size += Math.abs(column[row]);
    }
    if (outcomes[row] >= 0 && total >= 1 - within && size <= 1 + within) valid[row] = 1;
    else {
      invalid.count += 1;
      if (invalid.first.length < 5) {
        const why = outcomes[row] < 0 ? "the outcome is missing, or none of the classes"
          : Number.isNaN(total) ? "a probability is missing, or no number"
          : `the probabilities sum to ${Number(total.toPrecision(6))}${size > total ? ", and some are negative" : ""}`;
        invalid.first.push({ row: row + 1, why });
      }
    }
  }
  return { valid, invalid };
}

/**
 * Count rows: for each group, class and bin; as one more class, the most likely one of each row.
 * @param {Float64Array[]} columns probabilities, one array for each class
 * @param {Int32Array} outcomes the class of each row, -1 for none
 * @param {Int32Array | null} groups the group of each row
 */
function tally(columns, outcomes, groups = null, groupCount = 1) {
  const d = columns.length;
  const width = (d + 1) * BINS;
  const cells = () => new Float64Array(groupCount * width);
  const counts = { d, groupCount, weight: cells(), hits: cells(), ones: cells(), rest: cells(),
    scoreOnes: new Float64Array(4 * groupCount), scoreRest: new Float64Array(4 * groupCount),
    impossible: new Float64Array(groupCount) };
  const { weight, hits, ones, rest, scoreOnes, scoreRest, impossible } = counts;
  const { valid, invalid } = check(columns, outcomes);
  const scores = new Float64Array(4);
  for (let row = 0; row < outcomes.length; row += 1) {
    if (!valid[row]) continue;
    const group = groups === null ? 0 : groups[row];
    const outcome = outcomes[row];
    let most = -1;
    let top = 0;
    let squares = 0;
    let small = 0;
    for (let k = 0; k <= d; k += 1) {
      const p = k < d ? Math.max(columns[k][row], 0) : most; // a negative one, within the tolerance, is 0
      if (k < d) {
        if (p > most) {
          most = p;
          top = k;
        }
        const square = p * p;
        const large = square + 2 - 2;
        squares += large;
        small += square - large + MAGIC - MAGIC;
      }
      const floor = Math.floor(p * BINS);
      const bin = Math.min(floor + (p >= (floor + 1) / BINS ? 1 : 0) - (p < floor / BINS ? 1 : 0), BINS - 1);
      const at = group * width + k * BINS + bin;
      weight[at] += 1;
      rest[at] += p + 2 - 2;
      if (rest[at] >= 1) {
        const whole = Math.floor(rest[at]);
        ones[at] += whole;
        rest[at] -= whole;
      }
      if (k < d ? k === outcome : top === outcome) hits[at] += 1;
    }
    const p = Math.max(columns[outcome][row], 0);
    const brier = (squares + small + 1) / 2 - p;
    const log = p > 0 ? Math.max(Math.min(-Math.log(p), LOG_SCALE) / LOG_SCALE, 0) : 0;
    if (p === 0) impossible[group] += 1;
    scores[0] = brier;
    scores[1] = brier * brier;
    scores[2] = log;
    scores[3] = log * log;
    for (let s = 0; s < 4; s += 1) {
      const at = 4 * group + s;
      scoreRest[at] += scores[s] + 2 - 2;
      const whole = Math.floor(scoreRest[at]);
      scoreOnes[at] += whole;
      scoreRest[at] -= whole;
    }
  }
  return { counts, invalid };
}

/** The calibration of some groups: bins, scores and their intervals. */
function calibration(counts, groups, classes) {
  const { d } = counts;
  const width = (d + 1) * BINS;
  const of = (table, at, size) => groups.map((group) => table[group * size + at]);
  const added = (numbers) => numbers.reduce((a, b) => a + b, 0);
  const all = [];
  for (let k = 0; k <= d; k += 1) {
    const bins = { weight: [], forecast: [], outcome: [] };
    for (let bin = 0; bin < BINS; bin += 1) {
      const at = k * BINS + bin;
      const rows = added(of(counts.weight, at, width));
      bins.weight.push(rows);
      bins.forecast.push(mean(of(counts.ones, at, width), of(counts.rest, at, width), rows));
      bins.outcome.push(rows ? added(of(counts.hits, at, width)) / rows : NaN);
    }
    all.push(bins);
  }
  const top = all.pop();
  const rounds = added(top.weight);
  const score = [0, 1, 2, 3].map((s) => mean(of(counts.scoreOnes, s, 4), of(counts.scoreRest, s, 4), rounds));
  const most = largestSurprise(top.forecast, d);
  let log = meanInterval(Number(decimal(LOG_SCALE * score[2], 9)), Number(decimal(LOG_SCALE ** 2 * score[3], 6)), rounds, most);
  if (added(of(counts.impossible, 0, 1)) > 0) log = { value: Infinity, low: Infinity, high: Infinity };
  const brier = meanInterval(2 * score[0], 4 * score[1], rounds, 2);
  return { rounds, top, each: all, classes, brier, log };
}

/** The largest log loss of a row whose likeliest class has one of these probabilities and does not come. */
function largestSurprise(top, classes) {
  const rest = top.filter((p) => p < 1).map((p) => 1 - p);
  return rest.length ? -Math.log(Math.min(...rest) / (classes - 1)) : Infinity;
}

/** A mean of independent rows from 0 to `most`, with its 90 % interval, also for what is rare or was never seen. */
function meanInterval(value, square, rows, most) {
  if (rows < 2) return { value, low: 0, high: most };
  const half = NORMAL_95 * Math.sqrt(Math.max(square - value ** 2, 0) / Math.max(rows - 1, 1));
  if (half <= 1e-12 * Math.abs(value) && !Number.isFinite(most)) return { value, low: 0, high: most };
  let low = value - half;
  let high = value + half;
  if (Number.isFinite(most) && half < (UNSEEN * most) / rows) {
    const known = (half / NORMAL_95) ** 2 * rows + value ** 2;
    const end = (bound) => {
      const centre = (rows * value + bound) / (rows + 1);
      const spread = (rows * known + bound ** 2) / (rows + 1) - centre ** 2;
      return centre + (bound < value ? -1 : 1) * NORMAL_95 * Math.sqrt(Math.max(spread, 0) / rows);
    };
    low = Math.min(low, end(0));
    high = Math.max(high, end(most));
  }
  return { value, low: Math.max(low, 0), high: Math.min(high, most) };
}
