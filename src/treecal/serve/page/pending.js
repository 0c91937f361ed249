// The rounds that await their outcomes, the oldest first.

import { get, streamPath } from "./api.js";
import { el, fill, say, table } from "./dom.js";
import { count, counted, span } from "./numbers.js";
import { problem, time } from "./parts.js";
import { forecastInWords, slowed } from "./words.js";

/** @typedef {import("./wire.js").Waiting} Waiting */

const PAGE = 10;

/** @param {string} name of the stream */
export function pendingList(name) {
  const overdue = el("input", { type: "checkbox", id: "overdue", onchange: () => load() });
  const summary = el("p");
  const warning = el("p", { class: "note", hidden: true });
  const left = el("p", { class: "soft", hidden: true });
  const rows = el("div");
  const more = el("button", { type: "button", class: "quiet", hidden: true, onclick: () => load(10 * shown) }, "Show more");
  const only = el("label", { class: "check" }, overdue, "overdue only");
  const section = el("section", { class: "card", "aria-labelledby": "pending-title" }, el("h2", { id: "pending-title" }, "Awaiting outcomes"), summary, warning, only, rows, more, left);
  let shown = PAGE;
  /** @type {import("./wire.js").Stream | null} */
  let stream = null;

  async function load(wanted = shown) {
    if (!stream) return;
    const { counts, config } = stream;
    const some = counts.pending > 0;
    only.hidden = !some;
    say(
      summary,
      some
        ? `${counted(counts.pending, "forecast")} ${counts.pending === 1 ? "awaits its outcome" : "await their outcomes"}, ${counts.overdue ? `${count(counts.overdue)} of them overdue` : "none overdue"}.`
        : counts.forecasts
          ? "Every forecast has its outcome."
          : "No forecast has come yet. Below is how to send one.",
    );
    const slow = slowed(stream);
    if (slow) warning.hidden = false; // for good: the number that waits goes up and down
    if (slow) say(warning, slow);
    left.hidden = counts.late + counts.void === 0;
    say(left, `${counted(counts.late + counts.void, "round")} ended without an outcome in time: late outcomes are kept, and are not in scores or verdicts.`);
    try {
      /** @type {import("./wire.js").Pending} */
      const found = some ? await get(streamPath(name, "pending"), { overdue: overdue.checked, limit: wanted }) : { pending: [], next: null };
      shown = wanted;
      more.hidden = found.next === null || shown >= 10_000;
      const columns = [{ name: "id" }, { name: "forecast" }, { name: "made" }, { name: "due" }, ...(config.tags?.length ? [{ name: "tags" }] : [])];
      if (found.pending.length) fill(rows, table("Forecasts that await their outcomes, the oldest first", columns, found.pending.map(cells)));
      else fill(rows, some && el("p", { class: "empty" }, "None is overdue."));
    } catch (error) {
      fill(rows, problem(error));
    }
  }

  /** @param {Waiting} waiting */
  function cells(waiting) {
    const tags = Object.entries(waiting.tags).map(([tag, value]) => `${tag} ${value}`).join(", ");
    return [
      waiting.id,
      forecastInWords(waiting, stream?.config.classes),
      time(waiting.at),
      waiting.due === null ? "–" : waiting.overdue ? el("span", { class: "overdue" }, `overdue by ${span(Math.max(Date.now() / 1000 - waiting.due, 1))}`) : time(waiting.due),
      ...(stream?.config.tags?.length ? [tags] : []),
    ];
  }

  return {
    section,
    /** @param {import("./wire.js").Stream} found */
    async update(found) {
      stream = found;
      await load();
    },
  };
}
