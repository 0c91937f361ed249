// Server-sent events, read from the body of an answer: unlike EventSource, fetch can send a token.

/**
 * @typedef {object} Message
 * @property {string} kind its `event` field; "" for a comment, which the server sends as a sign of life
 * @property {string} data
 */

/**
 * Yield the messages of a body as they come.
 * @param {ReadableStream<any>} body
 * @returns {AsyncGenerator<Message>}
 */
export async function* messages(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let kind = "message";
  /** @type {string[]} */
  let data = [];
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const lines = (rest + value).split(/\r\n|\n|\r(?!$)/);
    rest = lines.pop() ?? "";
    for (const line of lines) {
      if (line === "") {
        if (data.length) yield { kind, data: data.join("\n") };
        [kind, data] = ["message", []];
      } else if (line.startsWith(":")) {
        yield { kind: "", data: "" };
      } else {
        const [field, text] = split(line);
        if (field === "event") kind = text;
        else if (field === "data") data.push(text);
      }
    }
  }
}

/** @param {string} line @returns {[string, string]} */
function split(line) {
  const colon = line.indexOf(":");
  if (colon < 0) return [line, ""];
  return [line.slice(0, colon), line.slice(colon + (line[colon + 1] === " " ? 2 : 1))];
}
