// The page: which view, by its address.

import { forget, token } from "./api.js";
import { showStreams } from "./list.js";
import { hold } from "./paced.js";
import { showStream } from "./stream.js";

const main = /** @type {HTMLElement} */ (document.getElementById("main"));
const forgetButton = /** @type {HTMLButtonElement} */ (document.getElementById("forget"));
const holdButton = /** @type {HTMLButtonElement} */ (document.getElementById("hold"));
const [, name] = /^\/streams\/([^/]+)\/?$/.exec(location.pathname) ?? [];

forgetButton.hidden = token() === null;
forgetButton.addEventListener("click", () => {
  forget();
  location.reload();
});
holdButton.addEventListener("click", () => {
  const still = holdButton.getAttribute("aria-pressed") !== "true";
  holdButton.setAttribute("aria-pressed", String(still));
  hold(still);
});

if (name === undefined) showStreams(main);
else showStream(main, decodeURIComponent(name));
