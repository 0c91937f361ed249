// The types of the server's bodies and answers, written by generate.py from its OpenAPI document.

/**
 * An alarm of a monitor: `of` is what it watches, the model's forecasts or those announced. `round` and `onset`
 * count outcomes in order of arrival, from the last reset on; `since` is when that of the onset arrived.
 */
export interface Alarm {
  stream: string;
  of: "announced" | "model";
  at: number;
  round: number;
  onset: number;
  since: number;
  kind: string;
  where: string | number | null;
  direction: string;
  size: number;
  gap: number;
  e_value: number;
  group: string | null;
  words: string;
}

/** Alarms, the latest first. */
export interface Alarms {
  alarms: Alarm[];
}

/** An outcome that arrived for a closed round: kept beside the first, or the first of a void one. */
export interface Amendment {
  at: number;
  outcome: number | string | number[];
}

/** What was announced. */
export interface Announced {
  id: string;
  round: number;
  forecast: number[] | { [name: string]: number };
  state: string;
  points?: number[][] | null;
  weights?: number[] | null;
  quantiles?: { [name: string]: number } | null;
  action?: string | number | { [name: string]: string | number } | null;
  actions?: { [name: string]: unknown } | null;
}

/** What was announced, in the order of the request. */
export interface Announcements {
  forecasts: Announced[];
}

/**
 * What correction changed: squared errors, of classes the Brier score, of what is announced less the model's. It
 * is the mean over the rounds, each with itself, and its interval: far narrower than those of the two scores.
 */
export interface Change {
  value: number;
  low: number;
  high: number;
  level: number;
}

/**
 * Rounds of a stream: opened, learned, void or late, and those that await their outcomes; and amendments. Those
 * that were `deleted` stay in all other counts.
 */
export interface Counts {
  forecasts?: number;
  learned?: number;
  late?: number;
  void?: number;
  pending?: number;
  overdue?: number;
  amended?: number;
  deleted?: number;
}

/** The course of a stream: about ten marks a decade of rounds, and where it stands. */
export interface Curve {
  stream: string;
  norm: string;
  error: string;
  marks: Mark[];
}

/** How many forecasts were deleted, with all that was known of them. */
export interface Deleted {
  forecasts: number;
}

/** Where a monitor stands: an alarm is raised when `value` reaches `threshold`. */
export interface Evidence {
  value: number;
  peak: number;
  threshold: number;
  alarm: Alarm | null;
}

/** Every error of every route. */
export interface Failure {
  error: Problem;
}

/** Forecasts of numbers in the order of their outcomes: when these arrived, what they were, quantiles by level. */
export interface Fan {
  at: number[];
  outcomes: number[];
  quantiles: { [name: string]: number[] };
}

/** The server runs. */
export interface Health {
  ok?: boolean;
}

/** Forecasts from `least` to `below` seconds before their outcomes; those of rounds that were revised. */
export interface LeadTime {
  least: number;
  below: number;
  forecasts: number;
  brier: number;
  too_sure: number | null;
}

/** A point of the curves: after so many outcomes, errors per round, the guarantee on that announced, evidence. */
export interface Mark {
  rounds: number;
  at: number;
  model: number | null;
  announced: number | null;
  guarantee: number | null;
  model_evidence: number | null;
  announced_evidence: number | null;
}

/** A forecast to announce: the model's `p`, or none where the stream forecasts by itself. */
export interface NewForecast {
  /** A name for the round, made by the client: 1 to 200 characters, in one line. */
  id: string;
  p?: number[] | { [name: string]: number | string | number[] } | null;
  tags?: { [name: string]: string };
  due?: number | null;
  used?: boolean;
}

/** Forecasts to announce, in order; all of them or none. */
export interface NewForecasts {
  forecasts: NewForecast[];
}

/** The outcome of a forecast. */
export interface NewOutcome {
  /** Letters, digits, dots, underscores and hyphens; 128 at most. */
  stream: string;
  /** A name for the round, made by the client: 1 to 200 characters, in one line. */
  id: string;
  outcome: number | string | number[];
  amend?: boolean;
}

/**
 * Outcomes, learned in order. Many are learned in parts, once all are valid. Sent again after a break, those
 * that were learned are `replayed`.
 */
export interface NewOutcomes {
  outcomes: NewOutcome[];
}

/**
 * A stream to create. One of `classes` and `set`; at most one of `corrector` and `forecaster`. With neither, the
 * model's forecasts are announced as they are: kept, scored and watched.
 */
export interface NewStream {
  /** Letters, digits, dots, underscores and hyphens; 128 at most. */
  name: string;
  classes?: string[] | null;
  set?: Shape | null;
  corrector?: Part | null;
  gate?: boolean;
  forecaster?: Part | null;
  monitor?: Watch | null;
  tags?: string[];
  group?: string[];
  limit?: number | null;
  keep?: number | null;
  revises?: boolean;
}

/** A corrector or forecaster by its registered name, with options for its constructor. */
export interface Part {
  name: string;
  options?: { [name: string]: boolean | number | string | unknown[] | { [name: string]: unknown } | null };
}

/** A page of rounds that await their outcomes, the oldest first; `next` is the `after` of the next page. */
export interface Pending {
  pending: Waiting[];
  next: number | null;
}

/** What was wrong, where, and what would be right. */
export interface Problem {
  code: string;
  message: string;
  hint?: string | null;
  at?: string | null;
}

/** All that is known of a round. */
export interface Record {
  id: string;
  round: number;
  at: number;
  model: number[] | null;
  forecast: number[];
  tags: { [name: string]: string };
  due: number | null;
  state: string;
  status: "late" | "learned" | "pending" | "void";
  outcome: number | string | number[] | null;
  settled: number | null;
  amendments: Amendment[];
  used: boolean;
}

/**
 * Errors, reliability and scores, as `treecal audit --json` has them, of some rounds in order of their outcomes.
 * `groups` is filled where `by` was given: each has `by`, the value of the tag or the start of the window.
 */
export interface Scores {
  stream: string;
  rounds: number;
  of: number;
  model: { [name: string]: unknown } | null;
  announced: { [name: string]: unknown } | null;
  groups: ({ [name: string]: unknown })[];
  change: Change | null;
  fan?: Fan | null;
}

/**
 * What became of an outcome. learned. replayed: the round has it already. amended: kept beside the first one.
 * late: it arrived after it was due, or the round is void; it is kept and not learned. conflict: the round has
 * another one. unknown: there is no such id.
 */
export interface Settled {
  stream: string;
  id: string;
  status: "amended" | "conflict" | "late" | "learned" | "replayed" | "unknown";
}

/** What became of the outcomes, in the order of the request, and how many of each. */
export interface Settlements {
  outcomes: Settled[];
  counts: { [name: string]: number };
}

/** A set of outcomes by its name, such as `Box`, with its arguments. */
export interface Shape {
  name: string;
  options?: { [name: string]: boolean | number | number[] | null };
}

/** A stream: how it was made, and how it stands. */
export interface Stream {
  name: string;
  config: NewStream;
  created: number;
  archived: number | null;
  counts: Counts;
  state: string;
  played: string;
  verdict: { [name: string]: unknown } | null;
  model_verdict: { [name: string]: unknown } | null;
  monitors: { [name: string]: Evidence };
  last: number | null;
  leads?: LeadTime[];
}

/**
 * Settings of a stream to change, and no others: what is left out stays as it is. With `corrector` or `gate`,
 * also the same again, a new corrector learns from the stream's log before it announces.
 */
export interface StreamChange {
  corrector?: Part | null;
  gate?: boolean;
  monitor?: Watch | null;
  tags?: string[];
  limit?: number | null;
  keep?: number | null;
}

/** A page of streams, in the order of their names; `next` is the `after` of the next page. */
export interface Streams {
  streams: Stream[];
  next: string | null;
}

/** A round that awaits its outcome. */
export interface Waiting {
  id: string;
  round: number;
  at: number;
  due: number | null;
  overdue: boolean;
  forecast: number[];
  tags: { [name: string]: string };
  quantiles?: { [name: string]: number } | null;
}

/** When to raise an alarm: at a false one with probability `alpha` ever, or one in `arl` rounds on average. */
export interface Watch {
  alpha?: number;
  arl?: number | null;
}

/** A receiver of alarms. The counts and times are since the server started. */
export interface Webhook {
  name: string;
  url: string | null;
  streams: string[];
  pending: number;
  delivered?: number;
  failed?: number;
  last?: number | null;
  problem?: string | null;
}

/** Receivers of alarms. */
export interface Webhooks {
  webhooks: Webhook[];
}
