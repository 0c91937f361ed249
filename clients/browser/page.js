// What is seen: the choice of columns and the audit's answer. What a file holds is only ever written as text.
"use strict";

const byId = (id) => document.getElementById(id);
const source = new Blob([byId("worker").textContent], { type: "text/javascript" });
const worker = new Worker(URL.createObjectURL(source));
const SVG = "http://www.w3.org/2000/svg";
const amount = (n) => n.toLocaleString("en");
const figure = (x) => (Number.isFinite(x) ? x.toFixed(4) : x === null || Number.isNaN(x) ? "" : "∞");
const ends = ({ low, high }) => (Number.isFinite(high) ? `${figure(low)} – ${figure(high)}` : "an outcome had forecast 0");

let file = "";
let names = [];
let choice = null;

/** Make an element; text is text, never markup. */
function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  put(made, attributes);
  made.append(...children);
  return made;
}

function drawn(tag, attributes, ...children) {
  const made = document.createElementNS(SVG, tag);
  put(made, attributes);
  made.append(...children);
  return made;
}

function put(made, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== false) made.setAttribute(name, value === true ? "" : value);
  }
}

worker.onmessage = ({ data }) => {
  if (data.problem) {
    byId("status").textContent = "";
    byId("result").replaceChildren(el("p", { class: "problem", role: "alert" }, data.problem));
    return;
  }
  if (data.result) {
    byId("status").textContent = `${file}: ${amount(data.result.whole.rounds)} rows counted in ${data.seconds.toFixed(1)} s, on this machine.`;
    byId("result").replaceChildren(...show(data.result));
    return;
  }
  names = data.names;
  choice = data.choice;
  byId("form").hidden = false;
  byId("form").replaceChildren(...form());
  ask();
};

function open(name, bytes) {
  file = name;
  byId("status").textContent = `Reading ${name} …`;
  byId("result").replaceChildren();
  byId("form").hidden = true;
  worker.postMessage({ bytes }, [bytes]);
}

function ask() {
  byId("status").textContent = `Counting ${file} …`;
  worker.postMessage({ choice });
}

/** The columns that are read, to be chosen otherwise. */
function form() {
  const option = (chosen) => (name, column) => el("option", { value: column, selected: column === chosen }, name);
  const select = (label, chosen, none, changed) =>
    el("label", {}, label, el("select", { onchange: ({ target }) => changed(target.value === "" ? null : Number(target.value)) },
      ...(none === null ? [] : [el("option", { value: "", selected: chosen === null }, none)]), ...names.map(option(chosen))));
  const outcome = select("Outcome", choice.outcome, null, (column) => worker.postMessage({ outcome: column }));
  const classes = choice.classes.map((name, k) =>
    select(`Probability of ${name}`, choice.columns[k], choice.classes.length === 2 ? "what is left to 1" : "–", (column) => {
      choice.columns[k] = column;
      ask();
    }));
  const by = select("Groups", choice.by, "none", (column) => {
    choice.by = column;
    ask();
  });
  return [el("h2", {}, "Columns"), el("div", { class: "choices" }, outcome, ...classes, by)];
}

function table(head, rows, label) {
  const numbers = head.map((name) => name.startsWith(">"));
  const cell = (tag, value, k) => el(tag, { class: numbers[k] ? "number" : "", ...(tag === "th" ? { scope: "row" } : {}) }, value);
  return el("div", { class: "wide", tabindex: 0, role: "region", "aria-label": label }, el("table", {},
    el("thead", {}, el("tr", {}, ...head.map((name, k) => el("th", { class: numbers[k] ? "number" : "", scope: "col" }, name.replace(/^>/, ""))))),
    el("tbody", {}, ...rows.map((row) => el("tr", {}, ...row.map((value, k) => cell(k === 0 ? "th" : "td", value, k)))))));
}

function show({ whole, groups, off, invalid, columns, sentences, todo }) {
  const { views, top } = whole;
  const verdict = el("section", { class: "card verdict", "data-level": whole.level },
    el("h2", {}, whole.level[0].toUpperCase() + whole.level.slice(1)), ...sentences.map((text) => el("p", {}, text)),
    el("p", {}, el("strong", {}, `What to do: ${todo}`)));
  const errors = el("section", { class: "card" }, el("h2", {}, "Calibration errors"), table(
    ["error", ">value", ">by chance", ">1 in 20", ">RMS, no noise", ">90 % interval"],
    ["top-label ECE", "class-wise ECE"].map((name, k) => {
      const { luck, error } = views[k];
      return [name, figure(luck.value), figure(luck.mean), figure(luck.high), figure(error.value), ends(error)];
    }).concat([["top-label MCE", figure(whole.maximum), "", "", "", ""]]), "Calibration errors"));
  const base = Math.max(...whole.table.map(({ outcome }) => outcome));
  const scores = el("section", { class: "card" }, el("h2", {}, "Scores"), table(["score", ">value", ">90 % interval", ">of the base rates"], [
    ["Brier", figure(whole.brier.value), ends(whole.brier), figure(whole.uncertainty)],
    ["log", figure(whole.log.value), ends(whole.log), figure(whole.entropy)],
    ["accuracy", figure(whole.accuracy), "", figure(base)],
    ["skill", figure(whole.skill), "", figure(0)],
    ["resolution", figure(whole.resolution), "", figure(0)]], "Scores"));
  const classes = el("section", { class: "card" }, el("h2", {}, "Class by class"), table(
    ["class", "probability", ">forecast", ">outcome", ">ECE", ">by chance", ">RMS, no noise", ">90 % interval", "verdict"],
    whole.table.map((row, k) => [row.name, columns[k], figure(row.forecast), figure(row.outcome), figure(row.ece), figure(row.chance),
      figure(row.error.value), ends(row.error), row.off ? "off" : ""]), "Class by class"));
  const parts = [verdict, ...invalidRows(invalid), el("div", { class: "halves" }, diagram(whole, top), scores), errors, classes];
  if (groups.length > 0) {
    parts.push(el("section", { class: "card" }, el("h2", {}, `Groups by ${names[choice.by]}`), table(
      ["group", ">rows", ">top-label ECE", ">by chance", ">class-wise ECE", ">by chance", ">Brier", ">skill", "verdict"],
      groups.map((group) => [group.name, amount(group.rounds), ...group.views.flatMap(({ luck }) => [figure(luck.value), figure(luck.mean)]),
        figure(group.brier.value), figure(group.skill), group.level + (off.includes(group.name) ? " *" : "")]), "Groups"),
      el("p", { class: "soft" }, "* Off by more than chance, even among so many groups.")));
  }
  return [...parts, commands(columns)];
}

function invalidRows({ count, first }) {
  if (count === 0) return [];
  const rows = first.map(({ row, why }) => el("li", {}, `Row ${amount(row)}: ${why}.`));
  return [el("section", { class: "card" }, el("h2", {}, `${amount(count)} row${count === 1 ? "" : "s"} left out`), el("ul", {}, ...rows))];
}

/** How to have the same from a shell, and the correction; a single column is of the second class. */
function commands(columns) {
  const quoted = (text) => (/^[\w.,-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
  const options = `${quoted(file)} --outcome ${quoted(names[choice.outcome])}`;
  const forecast = ` --forecast ${quoted(columns.filter((_, k) => choice.columns[k] !== null).join(","))}`;
  const order = choice.columns[1] === null ? [...choice.classes].reverse() : choice.classes;
  const classes = ` --classes ${quoted(order.join(","))}`;
  return el("section", { class: "card" }, el("h2", {}, "The same from a shell, and the correction"), el("pre", { tabindex: 0 }, el("code", {},
    `# https://treecal.github.io/treecal/#install\ntreecal audit ${options}${forecast}${classes}\n` +
    `treecal recalibrate ${options}${forecast}${classes} --output corrected.csv`)));
}

/** The reliability diagram of the most likely class, or of one that is chosen. */
function diagram(whole, top) {
  const views = [["the most likely class", top], ...whole.classes.map((name, k) => [name, whole.each[k]])];
  const box = el("div", {});
  const draw = (k) => box.replaceChildren(reliability(...views[k]));
  draw(0);
  const chooser = el("select", { onchange: ({ target }) => draw(Number(target.value)) }, ...views.map(([name], k) => el("option", { value: k }, name)));
  return el("section", { class: "card" }, el("h2", {}, "Reliability"), el("p", {}, el("label", {}, "Of ", chooser)), box,
    el("p", { class: "soft" }, "On the diagonal, what was forecast is how often it came. Bars are 95 % intervals; hollow marks hold fewer than 30 rows."));
}

function reliability(name, bins) {
  const size = 320;
  const left = 44;
  const x = (p) => left + p * size;
  const y = (p) => 10 + (1 - p) * size;
  const picture = drawn("svg", { viewBox: `0 0 ${left + size + 14} ${size + 52}`, role: "img",
    "aria-label": `Reliability of ${name}: how often it came, by the probability it was given` });
  for (const p of [0, 0.2, 0.4, 0.6, 0.8, 1]) {
    picture.append(drawn("line", { class: "grid", x1: x(p), y1: y(0), x2: x(p), y2: y(1) }), drawn("line", { class: "grid", x1: x(0), y1: y(p), x2: x(1), y2: y(p) }),
      drawn("text", { x: x(p), y: y(0) + 16, "text-anchor": "middle" }, String(p)), drawn("text", { x: left - 6, y: y(p) + 4, "text-anchor": "end" }, String(p)));
  }
  picture.append(drawn("line", { class: "diagonal", x1: x(0), y1: y(0), x2: x(1), y2: y(1) }),
    drawn("text", { x: x(0.5), y: y(0) + 36, "text-anchor": "middle" }, `probability of ${name}`.slice(0, 60)),
    drawn("text", { transform: `translate(12 ${y(0.5)}) rotate(-90)`, "text-anchor": "middle" }, "how often it came"));
  const most = Math.max(...bins.weight);
  bins.weight.forEach((n, b) => {
    if (n === 0) return;
    const [p, o] = [bins.forecast[b], bins.outcome[b]];
    const z = 1.96; // Wilson's interval
    const middle = (o + (z * z) / (2 * n)) / (1 + (z * z) / n);
    const half = (z / (1 + (z * z) / n)) * Math.sqrt((o * (1 - o)) / n + (z * z) / (4 * n * n));
    picture.append(drawn("line", { class: "bar", x1: x(p), x2: x(p), y1: y(Math.max(middle - half, 0)), y2: y(Math.min(middle + half, 1)) }),
      drawn("circle", { class: n < 30 ? "dot thin" : "dot", cx: x(p), cy: y(o), r: 3 + 5 * Math.sqrt(n / most) },
        drawn("title", {}, `forecast ${figure(p)}, came ${figure(o)}, ${amount(n)} rows`)));
  });
  return picture;
}

/** A model that is too sure: its log odds are 1.8 times what they should be. */
function example() {
  let state = 7;
  const uniform = () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return (state + 0.5) / 2 ** 32;
  };
  const rows = ["station,p_rain,p_sun,weather"];
  for (let day = 0; day < 5000; day += 1) {
    const truth = uniform();
    const p = truth ** 1.8 / (truth ** 1.8 + (1 - truth) ** 1.8);
    rows.push(`${["coast", "hills", "plain"][day % 3]},${p.toFixed(4)},${(1 - p).toFixed(4)},${uniform() < truth ? "rain" : "sun"}`);
  }
  return new TextEncoder().encode(rows.join("\n")).buffer;
}

const drop = byId("drop");
byId("file").addEventListener("change", async ({ target }) => {
  const [chosen] = target.files;
  if (chosen) open(chosen.name, await chosen.arrayBuffer());
});
for (const [event, over] of [["dragover", true], ["dragleave", false], ["drop", false]]) {
  document.addEventListener(event, async (happened) => {
    happened.preventDefault();
    drop.classList.toggle("over", over);
    const dropped = event === "drop" ? happened.dataTransfer.files[0] : undefined;
    if (dropped) open(dropped.name, await dropped.arrayBuffer());
  });
}
byId("example").addEventListener("click", () => open("example.csv", example()));
