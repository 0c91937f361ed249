// What follows from the counts, as `treecal.measures` has it: errors beside what chance would show, the verdict, the advice.
"use strict";

const ALPHA = 0.05; // how often calibrated forecasts are called off
const TELL = 0.25; // of the base rate: where an error as large could hide, one cannot tell
const NEARLY = 0.1;
const SOMEWHAT = 0.3;
const THIN = 30;

// Special functions

/** ln Γ(x) for x > 0: Stirling's series, beyond 15. */
function logGamma(x) {
  let product = 1;
  for (; x < 15; x += 1) product *= x;
  const r = 1 / (x * x);
  const series = (1 / 12 - r * (1 / 360 - r * (1 / 1260 - r * (1 / 1680 - r / 1188)))) / x;
  return (x - 0.5) * Math.log(x) - x + 0.9189385332046728 + series - Math.log(product);
}

/** The shares of a gamma variable of shape `a` below `x`, and above it. */
function gammaShares(a, x) {
  if (x <= 0) return [0, 1];
  const scale = Math.exp(a * Math.log(x) - x - logGamma(a));
  if (x < a + 1) {
    let term = 1 / a;
    let total = term;
    for (let n = 1; term > total * 1e-17; n += 1) {
      term *= x / (a + n);
      total += term;
    }
    return [scale * total, 1 - scale * total];
  }
  let b = x + 1 - a; // Lentz's continued fraction
  let c = 1e300;
  let d = 1 / b;
  let h = d;
  for (let n = 1; n < 10000; n += 1) {
    const an = -n * (n - a);
    b += 2;
    d = 1 / (an * d + b);
    c = b + an / c;
    h *= d * c;
    if (Math.abs(d * c - 1) < 1e-16) break;
  }
  return [1 - scale * h, scale * h];
}

/** Where an increasing function of x > 0 reaches a value. */
function solve(rising, value, start) {
  let low = 0;
  let high = start;
  while (rising(high) < value) {
    low = high;
    high *= 2;
  }
  for (let step = 0; step < 60; step += 1) {
    const middle = (low + high) / 2;
    if (rising(middle) < value) low = middle;
    else high = middle;
  }
  return high;
}

const normalShare = (z) => (z < 0 ? gammaShares(0.5, (z * z) / 2)[1] / 2 : 1 - gammaShares(0.5, (z * z) / 2)[1] / 2);

/** The share of a noncentral chi-square variable below `x`: a Poisson mixture of central ones, from its far end. */
function chiSquareShare(x, freedom, shift) {
  const rate = shift / 2;
  const reach = 10 * Math.sqrt(rate + 1) + 20;
  const last = Math.ceil(rate + reach);
  let share = gammaShares(freedom / 2 + last, x / 2)[0];
  let total = 0;
  for (let j = last; j >= Math.max(0, Math.floor(rate - reach)); j -= 1) {
    const a = freedom / 2 + j;
    const chance = rate > 0 ? Math.exp(j * Math.log(rate) - rate - logGamma(j + 1)) : Number(j === 0);
    total += chance * share;
    share += Math.exp((a - 1) * Math.log(x / 2) - x / 2 - logGamma(a)); // of one degree of freedom less
  }
  return total;
}

// Bins

const filled = (bins) => bins.weight.flatMap((n, b) => (n > 0 ? [{ n, p: bins.forecast[b], o: bins.outcome[b], b }] : []));
const over = (bins, f) => sum(filled(bins).map((cell) => cell.n * f(cell))) / sum(bins.weight);
const ece = (bins) => over(bins, ({ p, o }) => Math.abs(o - p));
const meanForecast = (bins) => over(bins, ({ p }) => p);
const meanOutcome = (bins) => over(bins, ({ o }) => o);
const classwiseEce = (classes) => sum(classes.map(ece)) / classes.length;

function maximumError(bins) {
  const gaps = filled(bins).filter(({ n }) => n >= THIN).map(({ p, o }) => Math.abs(o - p));
  return gaps.length ? Math.max(...gaps) : NaN;
}

/** The base rate that errors are compared with: how often the class, or its opposite, is forecast or occurs. */
function baseRate(bins) {
  const p = meanForecast(bins);
  const o = meanOutcome(bins);
  return Math.min(Math.max(p, o), 1 - Math.min(p, o));
}

/** How far the mean outcomes of the bins lie from that of all rows, squared, without what noise adds to it. */
function resolution(bins) {
  const all = sum(bins.weight);
  const centre = meanOutcome(bins);
  const noise = ({ n, o }) => (n > 1 ? (o * (1 - o)) / (n - 1) : 0);
  const own = all > 1 ? (centre * (1 - centre)) / (all - 1) : 0;
  return Math.max(sum(filled(bins).map((cell) => (cell.n / all) * ((cell.o - centre) ** 2 - noise(cell)))) + own, 0);
}

/** How much the variance of a sum over classes grows because one row's outcome moves several of them. */
function together(classes) {
  if (classes.length === 1) return 1;
  const rates = classes.map(meanOutcome).sort((a, b) => a - b);
  const own = sum(rates.map((rate) => (rate * (1 - rate)) ** 2));
  let before = 0;
  let pairs = 0;
  for (const rate of rates) {
    pairs += rate ** 2 * before;
    before += rate ** 2;
  }
  return own > 0 ? 1 + (2 * pairs) / own : 2;
}

/** The mean of |X/n − p|, X binomial, by De Moivre's formula. */
function meanGap(n, p) {
  if (p <= 0 || p >= 1) return 0;
  if (n >= 1e6) {
    const rare = n * Math.min(p, 1 - p);
    const m = Math.floor(rare) + 1;
    return rare < 1000 ? (2 * Math.exp(m * Math.log(rare) - rare - logGamma(m))) / n : Math.sqrt(((2 / Math.PI) * p * (1 - p)) / n);
  }
  const m = Math.min(Math.floor(n * p), n - 1);
  const log = (m + 1) * Math.log(p) + (n - m) * Math.log1p(-p) + logGamma(n + 1) - logGamma(m + 1) - logGamma(n - m);
  return (2 * Math.exp(log)) / n;
}

/** What the mean ECE of some classes would be if the forecasts were right: its law is nearly a gamma one. */
function chance(classes) {
  const means = [];
  const variances = [];
  for (const bins of classes) {
    const all = sum(bins.weight);
    const cells = filled(bins).map(({ n, p }) => ({ share: n / all, gap: meanGap(n, Math.min(p, 1)), p: Math.min(p, 1), n }));
    means.push(sum(cells.map(({ share, gap }) => share * gap)));
    variances.push(sum(cells.map(({ share, gap, p, n }) => share ** 2 * Math.max((p * (1 - p)) / n - gap ** 2, 0))));
  }
  const value = classwiseEce(classes);
  const centre = sum(means) / classes.length;
  const deviation = Math.sqrt(sum(variances) * together(classes)) / classes.length;
  const step = 1 / (Math.max(classes.length, 2) * sum(classes[0].weight));
  if (deviation <= 1e-9 * centre || centre <= 0) {
    return { value, mean: centre, high: centre, p: value <= centre + 1e-9 ? 1 : 0 };
  }
  const shape = centre ** 2 / deviation ** 2;
  const scale = deviation ** 2 / centre;
  const high = scale * solve((x) => gammaShares(shape, x)[0], 0.95, shape);
  return { value, mean: centre, high, p: value <= step ? 1 : gammaShares(shape, (value - step) / scale)[1] };
}

/** Cells of several classes; those of one row joined with such of other classes, as they say nothing one by one. */
function joined(classes) {
  const cells = classes.map((bins) => {
    const all = sum(bins.weight);
    return filled(bins).map((cell) => ({ ...cell, share: cell.n / all }));
  });
  if (classes.length === 1) return cells;
  const single = new Map();
  for (const cell of cells.flat().filter(({ n }) => n < 2)) {
    const home = single.get(cell.b) ?? { n: 0, share: 0, p: 0, o: 0 };
    for (const [name, value] of [["n", cell.n], ["share", cell.share], ["p", cell.share * cell.p], ["o", cell.share * cell.o]]) {
      home[name] += value;
    }
    single.set(cell.b, home);
  }
  const more = [...single.values()].map((cell) => ({ ...cell, p: cell.p / cell.share, o: cell.o / cell.share }));
  return [...cells.map((own) => own.filter(({ n }) => n >= 2)), more];
}

/** The law of the mean square gap of the bins of some classes: `scale` times a noncentral chi-square, less its noise. */
function lawOf(classes) {
  const count = classes.length;
  const times = sum(classes[0].weight) * count;
  const factor = together(classes);
  const total = { square: [], plain: [], noise: [], moved: [], variance: [] };
  for (const cells of joined(classes)) {
    const rows = cells.map(({ n, p, o, share }) => {
      const rate = (n * o + 0.5) / (n + 1); // as if half a row of each kind had been seen besides
      const lost = n > 1 ? (o * (1 - o)) / (n - 1) : (o - p) ** 2;
      return { n, share, gap: o - p, lost, variance: rate * (1 - rate) };
    });
    const plain = sum(rows.map(({ share, gap }) => share * gap ** 2));
    total.plain.push(plain);
    total.square.push(sum(rows.map(({ share, gap, lost }) => share * (gap ** 2 - lost))));
    total.noise.push(sum(rows.map(({ n, variance }) => variance ** 2 * (n > 1 ? n / (n - 1) : 1))));
    const first = sum(rows.map(({ share, gap, variance }) => share * gap ** 2 * variance));
    total.moved.push(4 * first + Math.max(sum(rows.map(({ share, gap }) => share * gap ** 4)) - plain ** 2, 0));
    total.variance.push(sum(rows.map(({ variance }) => variance)));
  }
  const square = sum(total.square) / count;
  const plain = sum(total.plain) / count;
  const variance = sum(total.variance) / times;
  const noise = (sum(total.noise) * factor) / times ** 2;
  const first = (sum(total.moved) / times / count) * factor;
  let scale = Math.max(plain > 0 ? first / (4 * plain) : 0, (1e-6 * noise) / variance);
  if (plain <= 1e-12 * variance) scale = noise / variance;
  return { square, plain, scale, freedom: noise / scale ** 2 };
}

const rootGap = (classes) => Math.sqrt(Math.max(lawOf(classes).square, 0));

/** The root mean square gap of the bins of some classes, without noise, with its 90 % interval. */
function error(classes) {
  const { square, plain, scale, freedom } = lawOf(classes);
  const below = (seen, at) => {
    const x = seen / scale + freedom;
    const shift = at / scale;
    if (freedom + shift > 3000) return normalShare((x - freedom - shift) / Math.sqrt(2 * freedom + 4 * shift));
    return x > 0 ? chiSquareShare(x, freedom, shift) : 0;
  };
  const squareAt = (seen, share) =>
    scale <= 0 || below(seen, 0) <= share ? 0 : solve((at) => -below(seen, at), -share, Math.max(plain, seen, scale));
  const value = Math.sqrt(Math.max(square, 0));
  const low = Math.sqrt(squareAt(square, 0.95));
  const high = Math.sqrt(squareAt(Math.max(square, 0), 0.05));
  return { value, low, high: Math.min(Math.max(high, rareEnd(classes, value, high)), 1) };
}

/** The upper end where what moves the error is rare, or was never seen: rows are drawn again, with some unseen. */
function rareEnd(classes, value, high) {
  const others = Math.max(classes.length - 1, 1);
  const parts = classes.map((bins) => {
    const all = sum(bins.weight);
    return filled(bins).map(({ n, p, o }) => ({ n, p, o, share: n / all, moves: (1 - o) / others - o }));
  });
  const rows = sum(classes[0].weight);
  const size = (extra, hits) => {
    let squares = 0;
    for (const cells of parts) for (const cell of cells) squares += cell.share * (hits(cell) + extra * cell.moves - cell.p) ** 2;
    return Math.sqrt(squares / classes.length);
  };
  const seen = (cell) => cell.o;
  if (size(UNSEEN / rows, seen) - size(0, seen) <= high - value) return high;
  let state = 1;
  const uniform = () => {
    state = (state + 0x6d2b79f5) | 0; // Mulberry32
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return (((t ^ (t >>> 14)) >>> 0) + 0.5) / 2 ** 32;
  };
  const draws = Array.from({ length: 2000 }, () => size(-Math.log(uniform()) / rows, ({ n, o }) => binomial(n, o, uniform) / n));
  draws.sort((a, b) => a - b);
  const at = 0.95 * (draws.length - 1);
  const floor = Math.floor(at);
  return draws[floor] + (at - floor) * (draws[floor + 1] - draws[floor]);
}

/** A binomial number: by inversion where few are expected, else nearly normal. */
function binomial(n, p, uniform) {
  if (p > 0.5) return n - binomial(n, 1 - p, uniform);
  if (n * p > 30) {
    const z = Math.sqrt(-2 * Math.log(uniform())) * Math.cos(2 * Math.PI * uniform());
    return Math.min(Math.max(Math.round(n * p + z * Math.sqrt(n * p * (1 - p))), 0), n);
  }
  let left = uniform();
  let chanceOf = (1 - p) ** n;
  let k = 0;
  for (; k < n && left > chanceOf; k += 1) {
    left -= chanceOf;
    chanceOf *= ((n - k) * p) / ((k + 1) * (1 - p));
  }
  return k;
}
