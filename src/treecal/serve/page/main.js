// The page: which view, by its address.

import { forget, token } from "./api.js";
import { showStreams } from "./list.js";
import { showStream } from "./stream.js";

const main = /** @type {HTMLElement} */ (document.getElementById("main"));
const button = /** @type {HTMLButtonElement} */ (document.getElementById("forget"));
const [, name] = /^\/streams\/([^/]+)\/?$/.exec(location.pathname) ?? [];

button.hidden = token() === null;
button.addEventListener("click", () => {
  forget();
  location.reload();
});

if (name === undefined) showStreams(main);
else showStream(main, decodeURIComponent(name));
