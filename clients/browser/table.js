// Reads the bytes of a CSV file: what columns there are, what they seem to hold, and the cells of those that are asked for.
"use strict";

const QUOTE = 34;
const LINE_FEED = 10;
const CARRIAGE_RETURN = 13;
const SAMPLE = 1000;
const TENS = Array.from({ length: 16 }, (_, k) => Number(`1e${k}`));

/** What is wrong with a file or a choice, in words for whoever chose it. */
class Complaint extends Error {}

/** A CSV file: its names, its delimiter, and where its rows begin. */
class Table {
  /** @param {Uint8Array} bytes */
  constructor(bytes) {
    this.bytes = bytes;
    let start = bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf ? 3 : 0;
    if (bytes.subarray(0, 1000).includes(0)) {
      throw new Complaint("This is no text in UTF-8. Save the table as CSV, and drop that.");
    }
    let end = start;
    while (end < bytes.length && bytes[end] !== LINE_FEED) end += 1;
    const line = new TextDecoder().decode(bytes.subarray(start, end));
    const seen = [",", ";", "\t", "|"].map((sign) => line.split(sign).length);
    this.delimiter = [44, 59, 9, 124][seen.indexOf(Math.max(...seen))];
    this.start = start;
    this.names = [];
    this.scan(1, (_row, _column, from, to) => this.names.push(this.text(from, to).trim()), true);
    this.body = this.after;
    if (new Set(this.names).size < this.names.length) throw new Complaint("Two columns have the same name.");
    this.rows = 0;
  }

  /** Call `found(row, column, from, to)` for each cell of some rows; a quoted cell is given without its quotes. */
  scan(rows, found, header = false) {
    const { bytes, delimiter } = this;
    const size = bytes.length;
    let at = header ? this.start : this.body;
    let row = 0;
    for (; row < rows && at < size; row += 1) {
      if (bytes[at] === LINE_FEED || (bytes[at] === CARRIAGE_RETURN && bytes[at + 1] === LINE_FEED)) {
        at += bytes[at] === LINE_FEED ? 1 : 2; // an empty line is no row
        row -= 1;
        continue;
      }
      for (let column = 0; ; column += 1) {
        let from = at;
        let to;
        if (bytes[at] === QUOTE) {
          from = at + 1;
          do {
            at += 1;
            while (at < size && bytes[at] !== QUOTE) at += 1;
            at += 1;
          } while (bytes[at] === QUOTE);
          to = at - 1;
          while (at < size && bytes[at] !== delimiter && bytes[at] !== LINE_FEED) at += 1;
        } else {
          while (at < size && bytes[at] !== delimiter && bytes[at] !== LINE_FEED) at += 1;
          to = at > from && bytes[at - 1] === CARRIAGE_RETURN && bytes[at] !== delimiter ? at - 1 : at;
        }
        found(row, column, from, to);
        const ended = at >= size || bytes[at] === LINE_FEED;
        at += 1;
        if (ended) break;
      }
    }
    this.after = at;
    return row;
  }

  /** The text of a cell. */
  text(from, to) {
    const text = new TextDecoder().decode(this.bytes.subarray(from, to));
    return this.bytes[from - 1] === QUOTE ? text.replaceAll('""', '"') : text;
  }

  /** The number in a cell; NaN if it is none. Up to 15 digits are read here, exactly: quotients of two exact numbers. */
  number(from, to) {
    const { bytes } = this;
    let at = from;
    while (at < to && bytes[at] === 32) at += 1;
    const negative = bytes[at] === 45;
    if (negative) at += 1;
    let digits = 0;
    let value = 0;
    let decimals = -1;
    for (; at < to; at += 1) {
      const byte = bytes[at];
      if (byte >= 48 && byte <= 57) {
        value = 10 * value + (byte - 48);
        digits += 1;
        if (decimals >= 0) decimals += 1;
      } else if (byte === 46 && decimals < 0) decimals = 0;
      else break;
    }
    if (at < to || digits === 0 || digits > 15) {
      const text = this.text(from, to).trim();
      return text === "" || /[xob]/i.test(text) ? NaN : Number(text);
    }
    const read = decimals > 0 ? value / TENS[decimals] : value;
    return negative ? -read : read;
  }

  /**
   * The cells of some columns: of `numbers` as numbers, of `texts` as the place of each among those that differ.
   * @param {{numbers: number[], texts: number[]}} wanted
   */
  read({ numbers, texts }, rows = Infinity) {
    const most = Math.min(rows, this.rows || this._lines());
    const found = new Map();
    const kinds = new Int8Array(this.names.length);
    for (const column of numbers) {
      kinds[column] |= 1;
      found.set(column, { values: new Float64Array(most).fill(NaN) });
    }
    for (const column of texts) {
      kinds[column] |= 2;
      found.set(column, { ...found.get(column), places: new Int32Array(most), words: new Words(this) });
    }
    const by = this.names.map((_, column) => found.get(column));
    const count = this.scan(most, (row, column, from, to) => {
      const kind = kinds[column];
      if (kind & 1) by[column].values[row] = this.number(from, to);
      if (kind & 2) by[column].places[row] = by[column].words.place(from, to);
    });
    for (const each of found.values()) {
      each.values = each.values?.subarray(0, count);
      each.places = each.places?.subarray(0, count);
      each.words = each.words?.list;
    }
    if (rows === Infinity) this.rows = count;
    return found;
  }

  _lines() {
    let lines = 1;
    for (let at = this.body; (at = this.bytes.indexOf(LINE_FEED, at)) >= 0; at += 1) lines += 1;
    return lines;
  }
}

/** Words by their bytes, each with its place: decoding every cell would take longer than all the rest. */
class Words {
  constructor(table) {
    this.table = table;
    this.list = [];
    this.spans = [];
    this.homes = new Map();
  }

  place(from, to) {
    const { bytes } = this.table;
    let hash = to - from;
    for (let at = from; at < to; at += 1) hash = (Math.imul(hash, 31) + bytes[at]) | 0;
    const home = this.homes.get(hash);
    for (const place of home ?? []) {
      const span = this.spans[place];
      let at = to - from === span[1] - span[0] ? from : to + 1;
      while (at < to && bytes[at] === bytes[span[0] + at - from]) at += 1;
      if (at === to) return place;
    }
    const place = this.list.length;
    if (home) home.push(place);
    else this.homes.set(hash, [place]);
    this.spans.push([from, to]);
    this.list.push(this.table.text(from, to));
    return place;
  }
}

const OUTCOMES = /^(outcome|label|target|actual|truth|observed|result|class|y|y_true|weather)s?$/i;
const SIGNS = /[^\p{L}\p{N}.]+|\.(?!\p{N})|(?<!\p{N})\./gu;
const SEAMS = /(?<=\p{Ll})(?=\p{Lu})|(?<=\p{L})(?=\p{N})|(?<=\p{N})(?=\p{L})/gu;
const DECORATION = /^(?:probability|proba|prob|p)(?=.)|(?<=.)(?:probability|proba|prob)$/giu;

/** The words of a name, in small letters: they end at signs, between letters and digits, and before a capital. */
const bare = (text) => text.replace(SEAMS, " ").toLowerCase().replace(SIGNS, " ").trim().replace(/\.0+$/, "");

/** The class that a column is named after: `p_rain`, `P(rain)`, `rainProb`, `rain`. The longest, if several are. */
function namedAfter(name, classes) {
  const spelled = classes.map(bare);
  const exact = (k) => spelled[k] === "" || spelled.indexOf(spelled[k]) !== spelled.lastIndexOf(spelled[k]);
  for (const column of [name.replace(DECORATION, ""), name.replace(DECORATION, "$& "), name, name.toLowerCase()]) {
    const words = ` ${bare(column)} `;
    const found = classes.filter((each, k) => (exact(k) ? name.includes(each) : words.includes(` ${spelled[k]} `)));
    if (found.length > 0) return found.sort((a, b) => b.length - a.length)[0];
  }
  return undefined;
}

/** What the columns of a table seem to hold: the outcome, its classes, and the column of each. */
function guess(table) {
  const all = table.names.map((_, column) => column);
  const sample = table.read({ numbers: all, texts: all }, SAMPLE);
  const kinds = all.map((column) => {
    const { values, words, places } = sample.get(column);
    const there = values.filter((value) => !Number.isNaN(value));
    const probabilities = there.length > 0 && there.length >= 0.5 * values.length && there.every((p) => p >= -0.01 && p <= 1.01);
    return { column, name: table.names[column], distinct: words.length, rows: places.length, probabilities,
      fractions: probabilities && there.some((p) => p > 0 && p < 1) };
  });
  if (kinds.every((each) => each.rows === 0)) throw new Complaint("There are no rows below the names of the columns.");
  const few = kinds.filter((each) => !each.fractions && each.distinct <= Math.max(50, each.rows / 20));
  const labels = few.filter((each) => each.distinct > 1);
  const outcome = few.find((each) => OUTCOMES.test(each.name)) ??
    labels.filter((each) => sample.get(each.column).words.some((word) => kinds.some((k) => k.fractions && namedAfter(k.name, [word])))).at(-1) ??
    labels.sort((a, b) => a.distinct - b.distinct)[0];
  const numbered = (chosen) => chosen.filter((each) => each !== outcome).map((each) => each.column);
  return { outcome: outcome?.column ?? null, fractions: numbered(kinds.filter((each) => each.fractions)),
    probabilities: numbered(kinds.filter((each) => each.probabilities)) };
}

/** Labels in order, as `tc.audit` has them: whole numbers by size, all others as text. An empty cell is none. */
function inOrder(words) {
  const labels = words.filter((word) => word !== "");
  const whole = labels.every((word) => /^-?\d{1,15}$/.test(word));
  return whole ? labels.sort((a, b) => Number(a) - Number(b)) : labels.sort((a, b) => (a < b ? -1 : 1));
}

/** Which column is of which class, by their names; else, in order, if there are as many. `null` where unknown. */
function match(table, classes, fractions, probabilities) {
  const shared = classes.map(bare).map((name) => name.split(" "));
  while (shared.length > 1 && shared.every((words) => words.length > 1 && words[0] === shared[0][0])) shared.forEach((words) => words.shift());
  for (const names of [classes, shared.map((words) => words.join(" "))]) {
    const columns = names.map((name) => probabilities.filter((column) => namedAfter(table.names[column], names) === name));
    if (columns.every((own) => own.length === 0)) continue;
    const clear = columns.every((own) => own.length > 0) || columns.every((own) => own.length < 2);
    return columns.map((own) => (clear ? (own[0] ?? null) : null)); // a class too many, and one too few: whoever chose the file knows
  }
  if (fractions.length === classes.length) return fractions;
  return classes.map((_, k) => (classes.length === 2 && k === 1 ? (fractions[0] ?? null) : null));
}
