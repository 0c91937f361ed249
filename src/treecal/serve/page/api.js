// Requests to the server: JSON in, JSON out, with the token if there is one.

import { askForToken } from "./access.js";

const KEY = "treecal-token";

/** What the server refused, as it said it. */
export class Refused extends Error {
  /** @param {number} status @param {import("./wire.js").Problem} problem */
  constructor(status, problem) {
    super(problem.message);
    this.status = status;
    this.code = problem.code;
    this.hint = problem.hint ?? null;
    this.at = problem.at ?? null;
  }
}

/** The token of this tab, or null. */
export function token() {
  return sessionStorage.getItem(KEY);
}

/** Forget the token of this tab. */
export function forget() {
  sessionStorage.removeItem(KEY);
}

/**
 * Fetch with the token; where the server asks for one, ask the reader, and try again.
 * @param {string} path
 * @param {RequestInit} [init]
 * @returns {Promise<Response>} one whose status is a success
 */
export async function request(path, init = {}) {
  for (;;) {
    const used = token();
    const headers = { ...init.headers, ...(used ? { Authorization: `Bearer ${used}` } : {}) };
    const answer = await fetch(path, { ...init, headers, cache: "no-store", credentials: "omit" });
    if (answer.ok) return answer;
    const problem = await problemOf(answer);
    if (answer.status !== 401) throw new Refused(answer.status, problem);
    // Another request may have got a token meanwhile: try that one first.
    if (token() === used) sessionStorage.setItem(KEY, await askForToken(used ? problem.message : null));
  }
}

/**
 * Read JSON.
 * @param {string} path
 * @param {Record<string, string | number | boolean | null>} [query] those that are null are left out
 * @returns {Promise<any>}
 */
export async function get(path, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== null);
  const search = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
  return (await request(search ? `${path}?${search}` : path)).json();
}

/**
 * Send JSON, and read the answer.
 * @param {string} path
 * @param {unknown} [body]
 * @returns {Promise<any>}
 */
export async function post(path, body) {
  const init = body === undefined ? {} : { body: JSON.stringify(body), headers: { "Content-Type": "application/json" } };
  return (await request(path, { method: "POST", ...init })).json();
}

/** The address of a stream in the API. @param {string} name @param {string} [part] */
export function streamPath(name, part) {
  return `/v1/streams/${encodeURIComponent(name)}${part ? `/${part}` : ""}`;
}

/** The address of a stream's page. @param {string} name */
export function streamPage(name) {
  return `/streams/${encodeURIComponent(name)}`;
}

/** @param {Response} answer @returns {Promise<import("./wire.js").Problem>} */
async function problemOf(answer) {
  try {
    return (await answer.json()).error;
  } catch {
    return { code: "internal", message: `The server answered ${answer.status} ${answer.statusText}.` };
  }
}
