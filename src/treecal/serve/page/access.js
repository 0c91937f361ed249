// The form that asks for a token, in place of the page's content, until one is given.

import { el } from "./dom.js";

/** @type {Promise<string> | null} */
let asking = null;

/**
 * Ask the reader for a token. Requests that ask at the same time share the question.
 * @param {string | null} refusal what the server said of the last one
 * @returns {Promise<string>}
 */
export function askForToken(refusal) {
  asking ??= ask(refusal).finally(() => (asking = null));
  return asking;
}

/** @param {string | null} refusal @returns {Promise<string>} */
function ask(refusal) {
  const main = /** @type {HTMLElement} */ (document.getElementById("main"));
  return new Promise((resolve) => {
    const input = el("input", {
      id: "token", type: "password", required: true, autocomplete: "off", spellcheck: "false", "aria-describedby": "token-help",
    });
    const form = el(
      "form",
      {
        class: "access card",
        "aria-labelledby": "token-title",
        onsubmit: (/** @type {SubmitEvent} */ event) => {
          event.preventDefault();
          form.remove();
          main.hidden = false;
          main.focus();
          /** @type {HTMLElement} */ (document.getElementById("forget")).hidden = false;
          resolve(input.value.trim());
        },
      },
      el("h1", { id: "token-title" }, "A token is needed"),
      refusal && el("p", { class: "problem", role: "alert" }, `That token was refused: ${refusal}`),
      el("label", { for: "token" }, "Token"),
      input,
      el(
        "p",
        { id: "token-help", class: "soft" },
        "To look at this page it needs the scope read; to create, reset or archive streams also admin. It starts with tcal_ and is made on the server’s machine: ",
        el("code", {}, "treecal token create NAME --scope read"), ". It is kept in this tab only, until you close it.",
      ),
      el("button", { type: "submit" }, "Continue"),
    );
    main.hidden = true;
    main.before(form);
    input.focus();
  });
}
