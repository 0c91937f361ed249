// The form that creates a stream.

import { post, Refused, streamPage } from "./api.js";
import { el, fill } from "./dom.js";
import { problem } from "./parts.js";

/** @type {[string, string, [string, string][]][]} */
const PLAYERS = [
  ["corrector", "Correctors: there is a model, and its forecasts are corrected", [
    ["auto", "auto: mixes several of these and the model as it is; needs no choice"],
    ["temperature", "temperature: one factor for all logits"],
    ["vector", "vector: a factor and a shift for each class"],
    ["platt", "platt: for two classes, a factor and a shift"],
    ["beta", "beta: for two classes, three parameters"],
    ["isotonic", "isotonic: a non-decreasing curve for each class"],
    ["mean", "mean: mean outcomes of similar forecasts"],
    ["vector-then-mean", "vector-then-mean: scaling, then means"],
    ["guarded", "guarded corrector: with a guarantee on the error"],
  ]],
  ["forecaster", "Forecasters: there is no model, and the stream forecasts by itself", [
    ["guarded", "guarded forecaster: tracks the stream, with a guarantee"],
    ["treecal", "treecal: the guarantee of the paper"],
    ["adaptive", "adaptive: treecal that learns its weights"],
    ["tracker", "tracker: follows the stream"],
    ["running-mean", "running-mean: how often each class was the outcome"],
  ]],
];

const RULE = "Letters, digits, dots, underscores and hyphens; the first is a letter or digit.";

/** The form, folded until it is opened. */
export function createForm() {
  const name = el("input", { id: "new-name", required: true, maxlength: 128, pattern: "[A-Za-z0-9][A-Za-z0-9._\\-]*", title: RULE, autocomplete: "off", spellcheck: "false", "aria-describedby": "new-name-help" });
  const classes = el("input", { id: "new-classes", required: true, autocomplete: "off", spellcheck: "false", "aria-describedby": "new-classes-help" });
  const player = el(
    "select",
    { id: "new-player", onchange: allow },
    el("option", { value: "" }, "Announce the model’s forecasts as they are"),
    PLAYERS.map(([kind, label, names]) => el("optgroup", { label }, names.map(([value, text]) => el("option", { value: `${kind} ${value}`, selected: value === "auto" }, text)))),
  );
  const gate = el("input", { id: "new-gate", type: "checkbox" });
  const alpha = el("input", { id: "new-alpha", type: "number", value: "0.05", min: "0.000001", max: "0.5", step: "any", required: true, "aria-describedby": "new-alpha-help" });
  const slow = el("p", { class: "soft", role: "status", hidden: true }, "guarded, treecal and adaptive learn slowly while many forecasts wait for their outcomes; tracker and running-mean do not.");
  const trouble = el("div");
  const button = el("button", { type: "submit" }, "Create the stream");
  /** @type {Record<string, HTMLElement>} */
  const fields = { name, classes, corrector: player, forecaster: player, gate, monitor: alpha };

  function allow() {
    slow.hidden = !player.value.startsWith("forecaster");
    gate.disabled = !player.value.startsWith("corrector");
    if (gate.disabled) gate.checked = false;
  }

  /** @returns {import("./wire.js").NewStream} */
  function wanted() {
    const [kind, value] = player.value.split(" ");
    return {
      name: name.value.trim(),
      classes: classes.value.split(",").map((text) => text.trim()).filter(Boolean),
      ...(kind ? { [kind]: { name: value } } : {}),
      ...(gate.checked ? { gate: true } : {}),
      monitor: { alpha: Number(alpha.value) },
    };
  }

  /** What was wrong with one attempt is not what is wrong with the next. */
  function clear() {
    fill(trouble);
    for (const field of Object.values(fields)) field.removeAttribute("aria-invalid");
  }

  async function create() {
    button.disabled = true;
    clear();
    try {
      const stream = await post("/v1/streams", wanted());
      location.assign(streamPage(stream.name));
    } catch (error) {
      fill(trouble, problem(error));
      const at = error instanceof Refused && error.at ? fields[error.at.split(/[.[]/)[0]] : null;
      at?.setAttribute("aria-invalid", "true");
      (at ?? button).focus();
    } finally {
      button.disabled = false;
    }
  }

  const element = el(
    "details",
    { class: "card create" },
    el("summary", {}, el("h2", {}, "Create a stream")),
    el(
      "form",
      {
        onsubmit: (/** @type {SubmitEvent} */ event) => {
          event.preventDefault();
          create();
        },
      },
      field("Name", name, `${RULE} Such as weather.rain.`),
      field("Classes", classes, "All that can happen, separated by commas: dry, rain."),
      field("What to do with forecasts", player),
      slow,
      el("label", { class: "check" }, gate, "Correct only once there is evidence that it helps"),
      field("Probability of a false alarm, ever", alpha, "The probability of ever raising a false alarm is at most this. An alarm is raised when the evidence reaches 1 over it."),
      el("p", { class: "soft" }, "Tags, groups, a limit on the forecasts that wait, and outcomes that are no classes are set with ", el("a", { href: "/v1/openapi.json" }, "the API"), "."),
      trouble,
      button,
    ),
  );
  element.addEventListener("invalid", clear, true); // the browser stops what it sees is wrong
  return {
    element,
    open() {
      element.open = true;
    },
  };
}

/** @param {string} label @param {HTMLElement} input @param {string} [help] */
function field(label, input, help) {
  return el("div", { class: "field" }, el("label", { for: input.id }, label), help && el("p", { id: `${input.id}-help`, class: "soft" }, help), input);
}
