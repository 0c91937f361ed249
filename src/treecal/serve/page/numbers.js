// How numbers and moments are written.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const digits = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹";
const NONE = "–";

/** A number of things: 12,345. @param {number | null | undefined} n */
export function count(n) {
  return n === null || n === undefined ? NONE : whole.format(n);
}

/** Things by their number: "1 round", "12,345 rounds". @param {number} n @param {string} one @param {string} [many] */
export function counted(n, one, many = `${one}s`) {
  return `${count(n)} ${n === 1 ? one : many}`;
}

const ordinals = new Intl.PluralRules("en", { type: "ordinal" });
const ENDINGS = { one: "st", two: "nd", few: "rd" };

/** A place in an order: "22nd". @param {number} n */
export function nth(n) {
  return `${count(n)}${ENDINGS[/** @type {keyof typeof ENDINGS} */ (ordinals.select(n))] ?? "th"}`;
}

/** A quantity to three digits. @param {number | null | undefined} x */
export function amount(x) {
  if (x === null || x === undefined || !Number.isFinite(x)) return NONE;
  if (x === 0) return "0";
  const size = Math.abs(x);
  return size < 1e-4 || size >= 1e7 ? scientific(x) : digits.format(x);
}

/** A quantity to three decimals, so that a column of them can be compared. @param {number | null | undefined} x */
export function decimals(x) {
  return x === null || x === undefined || !Number.isFinite(x) ? NONE : x.toFixed(3);
}

/** Evidence: a power of ten where it is large, as only its size matters. @param {number | null | undefined} x */
export function evidence(x) {
  if (x === null || x === undefined || Number.isNaN(x)) return NONE;
  if (x < 1e4) return x > 0 && x < 1e-3 ? scientific(x) : digits.format(x);
  if (x >= 1e15) return Number.isFinite(x) ? power(Math.floor(Math.log10(x))) : "beyond all numbers";
  return scientific(x);
}

/** A share in per cent, to two digits. @param {number} x */
export function percent(x) {
  const of100 = 100 * x;
  return `${of100 >= 99.5 || of100 === 0 ? Math.round(of100) : Number(of100.toPrecision(2))}\u00a0%`;
}

/** A power of ten: 10⁷. @param {number} exponent */
export function power(exponent) {
  const raised = String(Math.abs(exponent)).replace(/\d/g, (digit) => SUPERSCRIPTS[Number(digit)]);
  return `10${exponent < 0 ? "⁻" : ""}${raised}`;
}

/** The moment, to the second, in the reader's own time zone. @param {number} seconds since 1970 */
export function moment(seconds) {
  const at = new Date(1000 * seconds);
  const two = (/** @type {number} */ n) => String(n).padStart(2, "0");
  return (
    `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ` +
    `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`
  );
}

/** How long ago, or in how long: "3 min ago", "in 2 h". @param {number} seconds since 1970 */
export function ago(seconds) {
  const past = Date.now() / 1000 - seconds;
  if (Math.abs(past) < 5) return "now";
  return past > 0 ? `${span(past)} ago` : `in ${span(-past)}`;
}

/** A length of time in its largest unit. @param {number} seconds */
export function span(seconds) {
  /** @type {[number, string][]} */
  const units = [[86400 * 2, "d"], [3600 * 2, "h"], [60 * 2, "min"], [0, "s"]];
  const sizes = { d: 86400, h: 3600, min: 60, s: 1 };
  const [, unit] = units.find(([from]) => seconds >= from) ?? [0, "s"];
  return `${count(Math.floor(seconds / sizes[/** @type {keyof typeof sizes} */ (unit)]))} ${unit}`;
}

/** @param {number} x */
function scientific(x) {
  const [mantissa, exponent] = x.toExponential(1).split("e");
  return `${mantissa.replace("-", "−")} × ${power(Number(exponent))}`;
}
