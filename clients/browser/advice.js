// The verdict in words and what to do: the sentences of `print(tc.audit(...))`.
"use strict";

const spelled = (n) => String(n).replace(/\B(?=(\d{3})+$)/g, ",");
const capital = (text) => text[0].toUpperCase() + text.slice(1);

/** A share in per cent, to two digits. */
function percent(share) {
  if (share >= 10) return "many times";
  return share < 0.995 ? `${Number((100 * share).toPrecision(2))} %` : `${decimal(100 * share, 0)} %`;
}

/** Whether it is chance, how large it is, and what to do. */
function judge(counted) {
  const { top, each } = counted;
  const views = [
    { name: "for the most likely class", error: error([top]), luck: chance([top]), base: baseRate(top) },
    { name: "class by class", error: error(each), luck: chance(each), base: sum(each.map(baseRate)) / each.length },
  ];
  for (const view of views) {
    view.share = view.base > 0 ? view.error.value / view.base : 0;
    view.most = view.base > 0 ? view.error.high / view.base : 0;
  }
  const p = Math.min(1, 2 * Math.min(...views.map((view) => view.luck.p)));
  const off = views.filter((view) => view.luck.p < ALPHA / 2);
  const first = (list, key) => list.reduce((best, view) => (view[key] > best[key] ? view : best));
  const worst = off.length ? first(off, "share") : first(views, "most");
  let level = worst.share <= SOMEWHAT ? "somewhat off" : "far off";
  if (p >= ALPHA) level = worst.most <= TELL ? "calibrated" : "cannot tell";
  else if (worst.share <= NEARLY && worst.most <= TELL) level = "nearly calibrated";
  const found = { ...counted, views, worst, level, p };
  found.off = offClasses(found);
  return { ...found, sentences: sentences(found), advice: advice(found) };
}

/** The classes that chance does not explain, the largest share of their base rate first. */
function offClasses({ each, classes }) {
  const size = (k) => rootGap([each[k]]) / Math.max(baseRate(each[k]), 1e-12);
  const off = each.flatMap((bins, k) => (chance([bins]).p < ALPHA / each.length ? [k] : []));
  return off.map((k) => [k, size(k)]).sort((a, b) => b[1] - a[1]).map(([k]) => classes[k]);
}

function sentences({ rounds, top, each, worst, level }) {
  const { error: found, luck, base } = worst;
  const rows = `${spelled(rounds)} row${rounds === 1 ? "" : "s"}`;
  const measured = `the ECE is ${decimal(luck.value, 3)}; calibrated forecasts would show ${decimal(luck.mean, 3)} by chance, and ` +
    `${decimal(luck.high, 3)} or more in one such log of twenty`;
  const said = [];
  if (level === "calibrated") said.push(`Calibrated, as far as ${rows} can tell. ${capital(worst.name)}, ${measured}.`);
  else if (level === "cannot tell") {
    said.push(`Cannot tell from ${rows}. ${capital(worst.name)}, ${measured}; but an error of up to ${decimal(found.high, 3)} could hide, ` +
      `${percent(worst.most)} of the base rate, ${decimal(base, 3)}.`);
  } else {
    said.push(`${capital(level)}, over ${rows}. ${capital(worst.name)}, forecasts miss the mean outcome by ${decimal(found.value, 3)} ` +
      `(90 % interval ${decimal(found.low, 3)} to ${decimal(found.high, 3)}), ${percent(worst.share)} of the base rate, ` +
      `${decimal(base, 3)}. It is not chance: ${measured}.`);
  }
  said.push(sureness(top, level));
  const thin = each.flatMap(filled).filter(({ n }) => n < THIN).length;
  const full = each.flatMap(filled).length;
  if (2 * thin > full) said.push(`${thin} of ${full} bins are thin: they have fewer than 30 rows.`);
  return said;
}

function sureness(top, level) {
  const p = meanForecast(top);
  const o = meanOutcome(top);
  const gap = decimal(Math.abs(p - o), 3);
  const found = `The most likely class was given ${decimal(p, 3)} on average, and was right in ${decimal(o, 3)} of the rows`;
  const tendency = `${p > o ? "too sure" : "not sure enough"} by ${gap}`;
  const small = Math.abs(shiftOf(top)) <= 2;
  if (gap === "0.000" || (small && level === "calibrated")) return `${found}: as sure as it should be, as far as these rows tell.`;
  if (small) return `${found}: ${tendency}, which may be chance; no tendency to over- or underconfidence is proved.`;
  return `${found}: ${tendency}.`;
}

/** How far the mean forecast of a class lies from its mean outcome, in standard deviations. */
function shiftOf(bins) {
  const p = meanForecast(bins);
  const o = meanOutcome(bins);
  return (p - o) / Math.sqrt(Math.max(o * (1 - o), p * (1 - p), 1e-12) / Math.max(sum(bins.weight), 1));
}

function advice(found) {
  const { rounds, worst, level } = found;
  if (level === "calibrated") return "No correction needed.";
  if (level === "cannot tell") {
    const met = Math.max(rounds, 1 / Math.max(worst.base, 1e-300));
    const more = met * Math.max((worst.most * (rounds / met)) / TELL, 1) ** 2 - rounds;
    if (more > 1e12) return "Too few rows to tell, and no log has enough of them: what is so rare is as good as impossible.";
    const size = 10 ** Math.max(Math.floor(Math.log10(Math.max(more, 1))) - 1, 0);
    return `Too few rows to tell: about ${spelled(Math.ceil(more / size) * size)} more at least.`;
  }
  return `${level === "nearly calibrated" ? "Small enough for most uses. " : ""}${remedy(found)} Use tc.AutoCorrector.`;
}

/** What is wrong, in the words of the simplest correction that removes most of the error. */
function remedy(found) {
  const fits = [[true, false], [false, true], [true, true]].map(([slope, byClass]) => fit(found.each, slope, byClass));
  const [temperature, shift, both] = fits;
  if (both.slope <= 0.1) {
    return "The forecasts hardly follow the outcomes, or run against them: are the classes in the right order? If they are, correction " +
      "makes the forecasts honest, and only another model makes them useful.";
  }
  const least = Math.min(...fits.map(({ left }) => left));
  const enough = fits.filter((each) => each.enough && (each.fine || each.left <= least + 0.1 * each.before));
  const simple = enough.filter((each) => each !== both).sort((a, b) => a.squares - b.squares);
  const chosen = simple[0] ?? (enough.includes(both) ? both : null);
  if (chosen === null) return "No temperature or shift explains it.";
  if (chosen === shift || Math.abs(chosen.slope - 1) <= 0.05) return where(found);
  const about = `${chosen.slope < 1 ? "too sure" : "not sure enough"}: a temperature of about ${Number((1 / chosen.slope).toPrecision(2))}`;
  return chosen === temperature ? `${capital(about)}.` : `${where(found)} And ${about}.`;
}

/** Which classes are off. */
function where({ each, classes, off }) {
  const said = (name) => {
    const bins = each[classes.indexOf(name)];
    return `${name} (${decimal(meanForecast(bins), 3)} forecast, ${decimal(meanOutcome(bins), 3)} observed)`;
  };
  if (off.length === 0 || 2 * off.length > classes.length || classes.length === 2) {
    const order = [...classes.keys()].sort(classes.length === 2
      ? (a, b) => meanOutcome(each[a]) - meanOutcome(each[b])
      : (a, b) => Math.abs(shiftOf(each[b])) - Math.abs(shiftOf(each[a])));
    if (Math.abs(shiftOf(each[order[0]])) < 2) return "Classes are off in ways of their own.";
    return `Base rates are off, most that of ${said(classes[order[0]])}.`;
  }
  const more = off.length > 3 ? ` and ${off.length - 3} more` : "";
  return `Only ${off.slice(0, 3).map(said).join(", ")}${more} ${off.length === 1 ? "is" : "are"} off.`;
}

/** Fit `logit(outcome) = slope·logit(forecast) + shift` to the bins of all classes, with Newton's method. */
function fit(each, withSlope, byClass) {
  const cells = each.flatMap((bins, k) => filled(bins).map(({ n, p, o }) => {
    const inside = Math.min(Math.max(p, 1e-6), 1 - 1e-6);
    return { n, o, p: inside, x: Math.log(inside / (1 - inside)), k: byClass ? k : 0 };
  }));
  const shifts = new Array(byClass ? each.length : 1).fill(0);
  const rate = (cell) => 1 / (1 + Math.exp(-Math.min(Math.max(slope * cell.x + shifts[cell.k], -40), 40)));
  let slope = 1;
  for (let step = 0; step < 30; step += 1) {
    const own = shifts.map(() => 0);
    const across = shifts.map(() => 0);
    const pull = shifts.map(() => 0);
    let curve = 0;
    let push = 0;
    for (const cell of cells) {
      const mu = rate(cell);
      const spread = cell.n * mu * (1 - mu) + 1e-6;
      const rest = cell.n * (cell.o - mu);
      own[cell.k] += spread + 1e-3;
      across[cell.k] += spread * cell.x;
      pull[cell.k] += rest;
      curve += spread * cell.x ** 2;
      push += rest * cell.x;
    }
    shifts.forEach((_, k) => {
      curve -= across[k] ** 2 / own[k];
      push -= (across[k] * pull[k]) / own[k];
    });
    const move = withSlope ? Math.min(Math.max(push / Math.max(curve, 1e-9), -0.5), 0.5) : 0;
    slope += move;
    shifts.forEach((_, k) => {
      shifts[k] += Math.min(Math.max((pull[k] - across[k] * move) / own[k], -2), 2);
    });
  }
  const noise = ({ n, o }) => (o * (1 - o)) / (n - 1);
  const told = cells.filter(({ n }) => n > 1);
  const before = told.reduce((all, cell) => all + cell.n * ((cell.o - cell.p) ** 2 - noise(cell)), 0);
  const left = told.reduce((all, cell) => all + cell.n * ((cell.o - rate(cell)) ** 2 - noise(cell)), 0);
  const squares = cells.reduce((all, cell) => {
    const mu = rate(cell);
    return all + (cell.n * (cell.o - mu) ** 2) / Math.max(mu * (1 - mu), 1e-9);
  }, 0);
  const free = cells.length - shifts.length - Number(withSlope);
  const fine = squares <= free + 2 * Math.sqrt(2 * Math.max(free, 0) * together(each));
  const steep = !withSlope || Math.max(...each.map((bins) => filled(bins).length)) > 1; // one forecast determines no slope
  const enough = (fine || left <= 0.25 * before) && steep;
  return { slope, before: Math.max(before, 0), left: Math.max(left, 0), squares, fine, enough };
}
