// What happens on the server, as it happens: one connection that is made again whenever it ends.

import { Refused, request } from "./api.js";
import { messages } from "./sse.js";

const SILENCE = 40_000; // ms; the server sends a sign of life every 15 s
const FIRST_WAIT = 1000;
const LONGEST_WAIT = 30_000;

/**
 * Follow the events of a stream, or of all, for as long as the page is open.
 * @param {object} options
 * @param {string | null} options.stream
 * @param {(kind: string, data: any) => void} options.onEvent
 * @param {() => void} options.onLive called whenever a connection was made, since what came before it was missed; and
 *   once if the first one fails, so that what can be read is
 */
export async function follow({ stream, onEvent, onLive }) {
  let wait = FIRST_WAIT;
  let first = true;
  for (;;) {
    const stop = new AbortController();
    let silence = setTimeout(() => stop.abort(), SILENCE);
    try {
      const query = stream === null ? "" : `?stream=${encodeURIComponent(stream)}`;
      const answer = await request(`/v1/events${query}`, { signal: stop.signal, headers: { Accept: "text/event-stream" } });
      if (!answer.body) throw new Error("no body");
      show("live");
      onLive();
      for await (const message of messages(answer.body)) {
        clearTimeout(silence);
        silence = setTimeout(() => stop.abort(), SILENCE);
        wait = FIRST_WAIT; // only a connection that says something counts as mended
        if (message.kind) onEvent(message.kind, JSON.parse(message.data));
      }
    } catch (error) {
      if (first) onLive();
      if (error instanceof Refused && (error.status === 403 || error.status === 404)) return show("off");
    } finally {
      clearTimeout(silence);
      first = false;
    }
    show("reconnecting");
    await pause(wait * (0.75 + Math.random() / 2)); // apart, so that a server that comes back is not met by all at once
    wait = Math.min(2 * wait, LONGEST_WAIT);
  }
}

/** @param {"live" | "reconnecting" | "off"} state */
function show(state) {
  const sign = /** @type {HTMLElement} */ (document.getElementById("live"));
  if (sign.dataset.state === state) return;
  sign.dataset.state = state;
  sign.textContent = state === "off" ? "not live" : state;
}

/** Wait, but no longer than until the network is back. @param {number} ms */
function pause(ms) {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      window.removeEventListener("online", done);
      resolve(undefined);
    };
    const timer = setTimeout(done, ms);
    window.addEventListener("online", done);
  });
}
