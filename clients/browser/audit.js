// The audit of chosen columns: all that the page shows, as plain data. It runs in a worker, so that the page stays awake.
"use strict";

const MOST_GROUPS = 500;
const MOST_CLASSES = 200;

/**
 * Audit the rows of a table.
 * @param {Table} table
 * @param {{outcome: number, classes: string[], columns: (number | null)[], by: number | null}} choice a column for each
 *   class; of two classes one may be null: it is what is left to 1
 */
function audit(table, { outcome, classes, columns, by }) {
  const there = columns.filter((column) => column !== null);
  if (classes.length < 2) throw new Complaint("The outcome has one class only. Choose another column for it.");
  if (there.length < columns.length && !(columns.length === 2 && there.length === 1)) {
    throw new Complaint("Choose a column of probabilities for each class.");
  }
  if (new Set(there).size < there.length) throw new Complaint("A column is chosen for two classes.");
  const texts = [...new Set(by === null ? [outcome] : [outcome, by])];
  const cells = table.read({ numbers: there, texts });
  const place = new Map(classes.map((name, k) => [name, k]));
  const { words, places } = cells.get(outcome);
  const label = words.map((word) => place.get(word) ?? place.get(word.trim()) ?? -1);
  const outcomes = places.map((at) => label[at]);
  const p = columns.map((column) => (column === null ? null : cells.get(column).values));
  const left = p.indexOf(null);
  if (left >= 0) p[left] = p[1 - left].map((value) => 1 - value);
  const group = by === null ? null : cells.get(by);
  if (group !== null && group.words.length > MOST_GROUPS) {
    throw new Complaint(`${table.names[by]} has ${spelled(group.words.length)} values. Group by a column with at most ${MOST_GROUPS}.`);
  }
  const size = group === null ? 1 : group.words.length;
  const { counts, invalid } = tally(p, outcomes, group?.places ?? null, size);
  if (invalid.count === outcomes.length) {
    throw new Complaint(`No row can be counted. Row 1: ${invalid.first[0].why}.`);
  }
  const whole = shown(judge(calibration(counts, [...Array(size).keys()], classes)));
  const groups = [];
  if (group !== null) {
    const order = [...Array(size).keys()].sort((a, b) => (group.words[a] < group.words[b] ? -1 : 1));
    for (const at of order) {
      const part = calibration(counts, [at], classes);
      if (part.rounds > 0) groups.push({ name: group.words[at] || "(missing)", ...shown(judge(part)) });
    }
  }
  const off = offAmong(groups);
  const names = columns.map((column, k) => (column === null ? `1 - ${table.names[columns[1 - k]]}` : table.names[column]));
  return { whole, groups, off: off.map(({ name }) => name), invalid, columns: names, ...said(whole, groups, off, names) };
}

/** What is shown of the rows, computed once. */
function shown(found) {
  const { top, each, classes, brier } = found;
  const rates = each.map(meanOutcome);
  const uncertainty = 1 - sum(rates.map((rate) => rate ** 2));
  return { ...found, accuracy: meanOutcome(top), maximum: maximumError(top), uncertainty,
    skill: uncertainty > 0 ? 1 - brier.value / uncertainty : NaN,
    entropy: -sum(rates.filter((rate) => rate > 0).map((rate) => rate * Math.log(rate))),
    resolution: sum(each.map(resolution)),
    table: classes.map((name, k) => ({ name, forecast: meanForecast(each[k]), outcome: rates[k], ece: ece(each[k]),
      chance: chance([each[k]]).mean, error: error([each[k]]), off: found.off.includes(name) })) };
}

/** Which of many groups are off: of those named, at most one of twenty is there by chance (Benjamini and Hochberg). */
function offAmong(groups) {
  const ranked = groups.map(({ p }) => p).sort((a, b) => a - b);
  const passed = ranked.filter((p, k) => p < (ALPHA * (k + 1)) / ranked.length);
  const limit = passed.length ? passed.at(-1) : -1;
  return groups.filter(({ p }) => p <= limit).sort((a, b) => b.worst.share - a.worst.share);
}

/** The verdict in sentences, and what to do. */
function said(whole, groups, off, columns) {
  const sentences = [...whole.sentences];
  let { advice: todo } = whole;
  if (whole.skill <= 0) {
    sentences.push(`The forecasts are no better than the base rates alone: their skill is ${decimal(whole.skill, 3)}.`);
  }
  if (whole.skill < -0.25 && whole.classes.length === 2) {
    const bins = whole.each[1];
    const squares = sum(filled(bins).map(({ n, p, o }) => n * ((1 - p) ** 2 - 2 * (1 - p) * o + o))) / sum(bins.weight);
    const other = 1 - (2 * squares) / whole.uncertainty;
    if (other > 0) {
      sentences.unshift(`The columns seem to be of the other class each: the skill is ${decimal(whole.skill, 3)}, and would be about ` +
        `${decimal(other, 3)} in the other order. They were read as ${columns.map((name, k) => `${name} of ${whole.classes[k]}`).join(", ")}.`);
    }
  }
  if (off.length > 0) {
    const more = off.length > 3 ? ` and ${off.length - 3} more` : "";
    const names = off.slice(0, 3).map(({ name }) => name).join(", ");
    sentences.push(`${off.length} of ${groups.length} groups ${off.length === 1 ? "is" : "are"} off by more than chance: ${names}${more}.`);
    if (off.length < groups.length) todo = "Some groups are off and others are not: use tc.ByGroup.";
  }
  return { sentences, todo };
}

/** What the page asks of the worker. */
function answer({ bytes, choice, outcome }) {
  if (bytes) self.table = new Table(new Uint8Array(bytes));
  const { table } = self;
  if (choice) return { result: audit(table, choice), seconds: 0 };
  const found = guess(table);
  const at = outcome ?? found.outcome;
  if (at === null) throw new Complaint("No column looks like an outcome: one with a few different values.");
  const { words } = table.read({ numbers: [], texts: [at] }).get(at);
  const classes = inOrder(words);
  if (classes.length > MOST_CLASSES) throw new Complaint(`${table.names[at]} has ${spelled(classes.length)} values, too many for classes.`);
  const others = (columns) => columns.filter((column) => column !== at);
  const columns = match(table, classes, others(found.fractions), others(found.probabilities));
  return { names: table.names, rows: table.rows, choice: { outcome: at, classes, columns, by: null } };
}

if (typeof WorkerGlobalScope !== "undefined") {
  self.onmessage = ({ data }) => {
    const begun = performance.now();
    try {
      self.postMessage({ ...answer(data), seconds: (performance.now() - begun) / 1000 });
    } catch (problem) {
      const words = problem instanceof Complaint ? problem.message : `The file cannot be read: ${problem.message}.`;
      self.postMessage({ problem: words });
    }
  };
}
