// How to send a forecast and its outcome, and how to take the books along.

import { request, streamPath, token } from "./api.js";
import { el, fill } from "./dom.js";
import { problem } from "./parts.js";
import { isNumber } from "./words.js";

/** @typedef {import("./wire.js").Stream} Stream */

/** @param {string} name of the stream */
export function usage(name) {
  const examples = el("div");
  const trouble = el("div");
  const link = el("a", { href: streamPath(name, "export"), download: `${name}.parquet`, onclick: save }, "Download the rounds as Parquet");
  const section = el(
    "section",
    { class: "card", "aria-labelledby": "usage-title" },
    el("h2", { id: "usage-title" }, "Send forecasts, take the books along"),
    examples,
    el("p", {}, link, ", for ", el("code", {}, "treecal audit"), " and any reader of tables. ", el("a", { href: "/v1/openapi.json" }, "All of the API"), "."),
    trouble,
  );
  let shown = false;

  /** A link sends no token: with one, the file is fetched and then saved. @param {MouseEvent} event */
  async function save(event) {
    if (!token() || link.href.startsWith("blob:")) return;
    event.preventDefault();
    try {
      const file = URL.createObjectURL(await (await request(streamPath(name, "export"))).blob());
      el("a", { href: file, download: `${name}.parquet` }).click();
      setTimeout(() => URL.revokeObjectURL(file), 60_000);
      fill(trouble);
    } catch (error) {
      fill(trouble, problem(error));
    }
  }

  return {
    section,
    /** @param {Stream} stream */
    update(stream) {
      section.querySelector("div")?.toggleAttribute("hidden", stream.archived !== null);
      if (shown) return;
      shown = true;
      fill(
        examples,
        command("A forecast, with an id of your own:", curl(streamPath(name, "forecasts"), { id: "round-1", ...(stream.config.forecaster ? {} : { p: example(stream) }) })),
        command("Its outcome, when it is known:", curl("/v1/outcomes", { outcomes: [{ stream: name, id: "round-1", outcome: isNumber(stream) ? 120.5 : stream.config.classes?.at(-1) ?? [0] }] })),
      );
    },
  };
}

/** @param {string} path @param {unknown} body */
function curl(path, body) {
  const access = token() ? ' \\\n  -H "Authorization: Bearer $TREECAL_TOKEN"' : "";
  const json = JSON.stringify(body, null, 1).replace(/\n\s*/g, " ").replaceAll("'", "'\\''");
  return `curl ${location.origin}${path}${access} \\\n  -H "Content-Type: application/json" \\\n  -d '${json}'`;
}

/** Probabilities that sum to 1. @param {Stream} stream */
function example(stream) {
  const { classes } = stream.config;
  if (isNumber(stream)) return { q10: 80, q50: 120, q90: 200 };
  if (!classes) return [0];
  const each = Math.floor(1000 / classes.length) / 1000;
  const first = Number((1 - each * (classes.length - 1)).toFixed(3));
  return Object.fromEntries(classes.map((name, i) => [name, i ? each : first]));
}

/** @param {string} label @param {string} text */
function command(label, text) {
  const said = el("span", { role: "status", class: "soft" });
  const copy = el("button", {
    type: "button",
    class: "quiet",
    "aria-label": `Copy: ${label.replace(/[,:].*/, "")}`,
    onclick: async () => {
      await navigator.clipboard.writeText(text);
      said.textContent = "copied";
      setTimeout(() => (said.textContent = ""), 2000);
    },
  }, "Copy");
  // Browsers give pages a clipboard over HTTPS and on this machine only.
  return el("div", { class: "command" }, el("p", { class: "row" }, el("span", { class: "grow" }, label), said, window.isSecureContext && copy), el("pre", { tabindex: 0, role: "region", "aria-label": label }, text));
}
