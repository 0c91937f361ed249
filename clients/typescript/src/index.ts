/**
 * A client of a treecal server.
 *
 * A server that does not answer never holds up a model: `forecast` then answers with the model's own forecast, and keeps
 * it, with its outcome, until the server is back. What is kept is recorded once, however often it is sent, since every
 * row has an id.
 */

import type * as api from "./api.js";

export type * from "./api.js";

export type Vector = number[] | Record<string, number>;
export type Outcome = api.NewOutcome["outcome"];

/** A forecast that was used as it was, or an outcome, that waits for the server. */
export type Row =
  | { stream: string; forecast: api.NewForecast }
  | { outcome: api.NewOutcome };

/** Where rows outlive the process. Without one they wait in memory. */
export interface Journal {
  /** Return what an earlier process left, the oldest first. */
  load(): Promise<Row[]>;
  /** Keep a row. */
  add(row: Row): Promise<void>;
  /** Forget the oldest rows: they were delivered or refused. */
  done(count: number): Promise<void>;
  close(): Promise<void>;
}

export interface Options {
  /** As `treecal token create` shows it. */
  token?: string;
  /** Milliseconds that a forecast waits for the server, all in all. */
  timeout?: number;
  /** Milliseconds that any other call waits. */
  patience?: number;
  /** Where rows outlive the process, such as `fileJournal(path)` of `treecal/node`. */
  journal?: Journal;
  /** Rows that may wait. From three quarters of it on, only outcomes are kept. */
  limit?: number;
  /** Told when the server goes and comes back, and what it refuses for good. */
  log?: (message: string) => void;
  fetch?: typeof fetch;
}

/** What to use in place of the model's forecast. */
export interface Answer<P extends Vector = Vector> {
  id: string;
  /** In the form in which the model's forecast was given. */
  forecast: P;
  /** Whether it came from the server; if not, it is the model's own. */
  corrected: boolean;
  /** Whether the server has it, or will. */
  kept: boolean;
  round: number | null;
  /** Why it is the model's own. */
  why: string | null;
}

/** What became of an outcome; `spooled` if it waits for the server. */
export interface Receipt {
  stream: string;
  id: string;
  status: api.Settled["status"] | "spooled";
}

/** What the server refused, or could not be asked for: a code for programs, a sentence and a hint for people. */
export class ServerError extends Error {
  constructor(
    readonly code: string,
    readonly status: number,
    message: string,
    readonly hint: string | null = null,
    readonly at: string | null = null,
  ) {
    super(hint === null ? message : `${message}\n\nHint: ${hint}`);
    this.name = "ServerError";
  }
}

/** No answer, or one that asks to come back later. */
class Away extends Error {
  constructor(message: string, readonly wait: number | null = null) {
    super(message);
  }
}

const LATER = new Set([408, 429]); // beside all from 500 on
const BATCH = 1000; // rows that are delivered together
const SOON = 100; // milliseconds: the first pause after a failure; each further one is twice as long
const LONGEST = 5_000;

export class Client {
  readonly url: string;
  /** Rows that waited and were delivered, that were refused for good, and forecasts for which there was no room. */
  readonly counts = { delivered: 0, refused: 0, dropped: 0 };

  readonly #options: Required<Omit<Options, "token" | "journal">>;
  readonly #headers: Record<string, string>;
  readonly #journal: Journal | undefined;
  #rows: Row[] = [];
  #opened: Promise<void> | undefined;
  #writing: Promise<unknown> = Promise.resolve();
  #delivery: Promise<void> | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  readonly #limited = new Map<string, boolean>();
  #until = 0; // no forecast asks the server before
  #pause = 0;
  #closed = false;

  constructor(url: string, options: Options = {}) {
    const { token, journal, ...rest } = options;
    this.url = url.replace(/\/+$/, "");
    this.#headers = token === undefined ? {} : { authorization: `Bearer ${token}` };
    this.#journal = journal;
    this.#options = {
      timeout: 200,
      patience: 10_000,
      limit: 300_000,
      log: (message) => console.warn(`treecal: ${message}`),
      fetch: globalThis.fetch.bind(globalThis),
      ...rest,
    };
  }

  /** Rows that wait for the server. */
  get waiting(): number {
    return this.#rows.length;
  }

  // Forecasts and outcomes: never held up, never lost while there is room

  /** Announce the model's forecast, and return what to use in its place. */
  async forecast<P extends Vector>(
    stream: string,
    p: P,
    given: { id?: string; tags?: Record<string, string>; due?: number | Date; timeout?: number } = {},
  ): Promise<Answer<P>> {
    const numbers = Array.isArray(p) ? p : Object.values(p);
    const wrong = numbers.find((each) => !Number.isFinite(each));
    if (numbers.length === 0 || wrong !== undefined) {
      throw new ServerError("invalid", 0, `the forecast holds ${wrong ?? "nothing"}, expected finite numbers.`);
    }
    const { id = crypto.randomUUID(), tags = {}, due, timeout = this.#options.timeout } = given;
    const row: api.NewForecast = { id, p, tags, due: due instanceof Date ? due.getTime() / 1000 : (due ?? null) };
    let why = "the server did not answer a moment ago";
    if (Date.now() >= this.#until) {
      try {
        const found = await this.#call<api.Announced>("POST", `${route(stream)}/forecasts`, row, timeout);
        return { id, forecast: likeness(p, found.forecast), corrected: true, kept: true, round: found.round, why: null };
      } catch (error) {
        if (error instanceof Away) {
          why = error.message;
        } else if (error instanceof ServerError && error.code === "archived") {
          this.#options.log(error.message);
          return { id, forecast: p, corrected: false, kept: false, round: null, why: error.message };
        } else if (error instanceof ServerError && refusedAccess(error)) {
          why = error.message;
          this.#options.log(error.message);
        } else {
          throw error;
        }
      }
    }
    await this.#open();
    const kept = this.#rows.length < 0.75 * this.#options.limit;
    if (kept) await this.#keep({ stream, forecast: { ...row, used: true } });
    else this.counts.dropped += 1;
    return { id, forecast: p, corrected: false, kept, round: null, why };
  }

  /** Send an outcome: the index or name of a class, or a point. It never overtakes its forecast. */
  async outcome(stream: string, id: string, outcome: Outcome, given: { amend?: boolean } = {}): Promise<Receipt> {
    const row: api.NewOutcome = { stream, id, outcome, amend: given.amend ?? false };
    if ([outcome].flat().some((each) => typeof each === "number" && !Number.isFinite(each))) {
      throw new ServerError("invalid", 0, `the outcome ${String(outcome)} is no finite number.`);
    }
    await this.#open();
    if (this.#rows.length === 0 && Date.now() >= this.#until) {
      try {
        return (await this.#settle([row], this.#options.patience))[0]!;
      } catch (error) {
        if (!(error instanceof Away) && !(error instanceof ServerError && refusedAccess(error))) throw error;
      }
    }
    if (this.#rows.length >= this.#options.limit) {
      throw new ServerError("away", 0, `${this.url} gave no answer, and ${this.#rows.length} rows wait already.`,
        "send this outcome again later.");
    }
    await this.#keep({ outcome: row });
    return { stream, id, status: "spooled" };
  }

  /** Deliver what waits, now, and return how much still waits. */
  async flush(milliseconds = this.#options.patience): Promise<number> {
    const end = Date.now() + milliseconds;
    await this.#open();
    while (this.#rows.length > 0 && Date.now() < end) {
      this.#until = 0;
      await this.#deliver();
      if (this.#rows.length > 0) await new Promise((resume) => setTimeout(resume, SOON));
    }
    return this.#rows.length;
  }

  /** Stop. What waits stays in the journal, if there is one. */
  async close(): Promise<void> {
    this.#closed = true;
    clearTimeout(this.#timer);
    await this.#delivery;
    await this.#writing;
    await this.#journal?.close();
  }

  // All else: an answer, or an error

  /** Create a stream; the same again is fine. */
  create(stream: api.NewStream): Promise<api.Stream> {
    return this.#ask("POST", "/v1/streams", stream);
  }

  change(stream: string, change: api.StreamChange): Promise<api.Stream> {
    return this.#ask("PATCH", route(stream), change);
  }

  stream(stream: string): Promise<api.Stream> {
    return this.#ask("GET", route(stream));
  }

  /** List streams, page by page. */
  async *streams(query: { prefix?: string; archived?: boolean } = {}): AsyncGenerator<api.Stream> {
    let after: string | null | undefined;
    do {
      const page: api.Streams = await this.#ask("GET", "/v1/streams" + search({ ...query, after }));
      yield* page.streams;
      after = page.next;
    } while (after != null);
  }

  /** Announce many forecasts: all of them or none. */
  async forecasts(stream: string, forecasts: api.NewForecast[]): Promise<api.Announced[]> {
    const found: api.Announcements = await this.#ask("POST", `${route(stream)}/forecasts/batch`, { forecasts });
    return found.forecasts;
  }

  outcomes(outcomes: api.NewOutcome[]): Promise<Receipt[]> {
    return this.#told(() => this.#settle(outcomes, this.#options.patience));
  }

  record(stream: string, id: string): Promise<api.Record> {
    return this.#ask("GET", `${route(stream)}/forecasts/${encodeURIComponent(id)}`);
  }

  scores(
    stream: string,
    query: { by?: string; window?: string; since?: number; until?: number; last?: number } = {},
  ): Promise<api.Scores> {
    return this.#ask("GET", `${route(stream)}/scores${search(query)}`);
  }

  async alarms(query: { stream?: string } = {}): Promise<api.Alarm[]> {
    const found: api.Alarms = await this.#ask("GET", "/v1/alarms" + search(query));
    return found.alarms;
  }

  archive(stream: string): Promise<api.Stream> {
    return this.#ask("POST", `${route(stream)}/archive`);
  }

  /** Delete a stream with all that is kept of it. */
  delete(stream: string): Promise<api.Deleted> {
    return this.#ask("DELETE", route(stream));
  }

  // What waits

  async #open(): Promise<void> {
    if (this.#closed) throw new ServerError("closed", 0, "this client is closed.");
    this.#opened ??= (async () => {
      this.#rows.push(...((await this.#journal?.load()) ?? []));
      if (this.#rows.length > 0) this.#later();
    })();
    await this.#opened;
  }

  async #keep(row: Row): Promise<void> {
    this.#rows.push(row);
    this.#later();
    await this.#write((journal) => journal.add(row));
  }

  #write(what: (journal: Journal) => Promise<void>): Promise<unknown> {
    const journal = this.#journal;
    if (journal === undefined) return this.#writing;
    const written = this.#writing.then(() => what(journal)); // one after the other
    this.#writing = written.catch((error: unknown) => this.#options.log(`the journal cannot be written: ${String(error)}`));
    return this.#writing;
  }

  #later(): void {
    if (this.#timer !== undefined || this.#closed) return;
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      void this.#deliver().finally(() => {
        if (this.#rows.length > 0) this.#later();
      });
    }, Math.max(SOON, this.#until - Date.now()));
    (this.#timer as { unref?: () => void }).unref?.(); // it keeps no process alive
  }

  #deliver(): Promise<void> {
    this.#delivery ??= this.#deliverAll().finally(() => {
      this.#delivery = undefined;
    });
    return this.#delivery;
  }

  async #deliverAll(): Promise<void> {
    try {
      while (this.#rows.length > 0 && !this.#closed) {
        const rows = this.#rows.slice(0, BATCH);
        const limited = new Set<string>();
        for (const stream of new Set(rows.flatMap((row) => ("forecast" in row ? [row.stream] : [])))) {
          if (await this.#isLimited(stream)) limited.add(stream);
        }
        for (const together of requests(rows, limited)) await this.#deliverRows(together);
        this.#rows.splice(0, rows.length);
        await this.#write((journal) => journal.done(rows.length));
      }
    } catch (error) {
      if (error instanceof ServerError) this.#options.log(error.message); // access: no fault of the rows, which wait
      else if (!(error instanceof Away)) throw error;
    }
  }

  /** Deliver rows of one kind; if the server refuses them together, each half by itself. */
  async #deliverRows(rows: Row[]): Promise<void> {
    const first = rows[0]!;
    try {
      if ("forecast" in first) {
        const forecasts = rows.map((row) => (row as typeof first).forecast);
        await this.#call("POST", `${route(first.stream)}/forecasts/batch`, { forecasts }, this.#options.patience);
        this.counts.delivered += rows.length;
        return;
      }
      const outcomes = rows.map((row) => (row as typeof first).outcome);
      for (const { stream, id, status } of await this.#settle(outcomes, this.#options.patience)) {
        if (status === "unknown") this.#refuse(`the outcome of ${id} in ${stream}: there is no such forecast.`);
        else this.counts.delivered += 1;
      }
    } catch (error) {
      if (!(error instanceof ServerError) || refusedAccess(error)) throw error;
      if (rows.length === 1) return this.#refuse(error.message);
      const half = rows.length >> 1;
      await this.#deliverRows(rows.slice(0, half));
      await this.#deliverRows(rows.slice(half));
    }
  }

  async #isLimited(stream: string): Promise<boolean> {
    let limited = this.#limited.get(stream);
    if (limited === undefined) {
      try {
        const found = await this.#call<api.Stream>("GET", route(stream), undefined, this.#options.patience);
        limited = found.config.limit != null;
      } catch (error) {
        if (!(error instanceof ServerError)) throw error;
        return true; // not known: its rows are refused, or the token may not read
      }
      this.#limited.set(stream, limited);
    }
    return limited;
  }

  #refuse(why: string): void {
    this.counts.refused += 1;
    this.#options.log(`refused for good: ${why}`);
  }

  // Requests

  async #settle(outcomes: api.NewOutcome[], timeout: number): Promise<Receipt[]> {
    return (await this.#call<api.Settlements>("POST", "/v1/outcomes", { outcomes }, timeout)).outcomes;
  }

  #ask<T>(method: string, path: string, body?: unknown): Promise<T> {
    return this.#told(() => this.#call<T>(method, path, body, this.#options.patience));
  }

  async #told<T>(call: () => Promise<T>): Promise<T> {
    try {
      return await call();
    } catch (error) {
      if (error instanceof Away) throw new ServerError("away", 0, `${this.url} gave no answer: ${error.message}.`);
      throw error;
    }
  }

  async #call<T>(method: string, path: string, body: unknown, timeout: number): Promise<T> {
    try {
      const response = await this.#options.fetch(this.url + path, {
        method,
        headers: body === undefined ? this.#headers : { ...this.#headers, "content-type": "application/json" },
        body: body === undefined ? null : JSON.stringify(body),
        redirect: "error", // a token goes nowhere else
        signal: AbortSignal.timeout(timeout),
      });
      const found: unknown = await response.json();
      if (response.ok) {
        if (this.#pause > 0) this.#options.log(`${this.url} answers again.`);
        this.#until = this.#pause = 0;
        return found as T;
      }
      const { code, message, hint = null, at = null } = (found as api.Failure).error;
      if (LATER.has(response.status) || response.status >= 500) {
        throw new Away(message, Number(response.headers.get("retry-after")) * 1000 || null);
      }
      throw new ServerError(code, response.status, message, hint, at);
    } catch (error) {
      if (error instanceof ServerError) throw error;
      const away = error instanceof Away ? error : new Away(words(error, timeout));
      if (this.#pause === 0) this.#options.log(`${this.url} gives no answer: ${away.message}`);
      this.#pause = Math.min(LONGEST, 2 * this.#pause || SOON);
      this.#until = Date.now() + (away.wait ?? this.#pause);
      throw away;
    }
  }
}

const route = (stream: string): string => `/v1/streams/${encodeURIComponent(stream)}`;

const refusedAccess = (error: ServerError): boolean => error.status === 401 || error.status === 403;

/**
 * Return the rows of each request: the forecasts of one stream after the other, then all outcomes, so that none is ahead
 * of its forecast. Where a stream lets only so many rounds wait, a forecast must not go before earlier outcomes.
 */
function requests(rows: Row[], limited: Set<string>): Row[][] {
  const found: Row[][] = [];
  let forecasts = new Map<string, Row[]>();
  let outcomes: Row[] = [];
  const close = (): void => {
    found.push(...forecasts.values(), ...(outcomes.length > 0 ? [outcomes] : []));
    forecasts = new Map();
    outcomes = [];
  };
  for (const row of rows) {
    if ("outcome" in row) {
      outcomes.push(row);
      continue;
    }
    if (outcomes.length > 0 && limited.has(row.stream)) close();
    const earlier = forecasts.get(row.stream);
    if (earlier) earlier.push(row);
    else forecasts.set(row.stream, [row]);
  }
  close();
  return found;
}

function likeness<P extends Vector>(p: P, found: Vector): P {
  return (Array.isArray(p) && !Array.isArray(found) ? Object.values(found) : found) as P;
}

function search(query: Record<string, string | number | boolean | null | undefined>): string {
  const given = Object.entries(query).filter(([, value]) => value != null);
  return given.length === 0 ? "" : "?" + new URLSearchParams(given.map(([name, value]) => [name, String(value)]));
}

function words(error: unknown, timeout: number): string {
  if (error instanceof Error && error.name === "TimeoutError") return `no answer within ${timeout} ms`;
  if (error instanceof SyntaxError) return "the answer is no JSON";
  const cause = error instanceof Error ? error.cause : undefined;
  return cause instanceof Error ? cause.message : String(error);
}
