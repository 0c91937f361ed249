// The bodies of requests and answers, as `_wire.py` has them: for editors and type checkers, never loaded by the page.

export interface Part { name: string; options?: Record<string, unknown> }
export interface Watch { alpha?: number; arl?: number | null }
export interface Shape { name: string; options?: Record<string, unknown> }
export interface NewStream {
  name: string; classes?: string[] | null; set?: Shape | null; corrector?: Part | null; gate?: boolean;
  forecaster?: Part | null; monitor?: Watch | null; tags?: string[]; group?: string[]; limit?: number | null;
  keep?: number | null; revises?: boolean;
}
export interface Counts {
  forecasts: number; learned: number; late: number; void: number; pending: number; overdue: number; amended: number;
  deleted: number;
}
export interface Alarm {
  stream: string; of: "model" | "announced"; at: number; round: number; onset: number; since: number; kind: string;
  where: string | number | null; direction: string; size: number; gap: number; e_value: number | null; group: string | null;
  words: string;
}
export interface Evidence { value: number; peak: number; threshold: number; alarm: Alarm | null }
export interface Mark {
  rounds: number; at: number; model: number | null; announced: number | null; guarantee: number | null;
  model_evidence: number | null; announced_evidence: number | null;
}
export interface Stream {
  name: string; config: NewStream; created: number; archived: number | null; counts: Counts; state: string; played: string;
  verdict: Verdict | null; model_verdict: Verdict | null; monitors: Record<string, Evidence>; last: number | null;
  leads?: LeadTime[];
}
export interface LeadTime { least: number; below: number; forecasts: number; brier: number; too_sure: number | null }
export interface Streams { streams: Stream[]; next: string | null }
export interface Waiting {
  id: string; round: number; at: number; due: number | null; overdue: boolean; forecast: number[];
  tags: Record<string, string>; quantiles?: Record<string, number> | null;
}
export interface Pending { pending: Waiting[]; next: number | null }
export interface Change { value: number; low: number; high: number; level: number }
export interface Scores {
  stream: string; rounds: number; of: number; model: Score | null; announced: Score | null; groups: Group[];
  change: Change | null; fan?: Fan | null;
}
export interface Fan { at: number[]; outcomes: number[]; quantiles: Record<string, number[]> }
export interface Curve { stream: string; norm: string; error: string; marks: Mark[] }
export interface Alarms { alarms: Alarm[] }
export interface Problem { code: string; message: string; hint?: string | null; at?: string | null }

// What the answers leave open: documents of the package's own.
export type Level = "calibrated" | "nearly calibrated" | "somewhat off" | "far off" | "cannot tell";
export interface Verdict {
  level: Level; share: number; p_value: number; off: string[]; sentences: string[]; advice: string;
}
export interface Bin { low: number; high: number; forecast: number; weight: number; outcome: number; gap: number }
export interface Bins {
  ece: number; chance: { mean: number; high: number; p_value: number }; debiased_ece: number; interval: [number, number];
  mean_forecast: number; mean_outcome: number; bins: Bin[];
}
export interface Calibration {
  rounds: number; verdict: Verdict; brier: number; log_score: number | null; accuracy: number; skill: number | null;
  payoff?: Payoff; intervals: { level: number; brier: [number, number] }; classwise_ece: number; top_label: Bins; classes: Record<string, Bins>;
}
export interface Payoff {
  cost: number;
  actions: { action: string | number; rows: number; cost: number | null; better: string | number; saved: number; interval: [number, number] }[];
}
export interface Group {
  by: string | null; // a value of the tag, or the start of the window in UTC
  model?: Score | null; announced?: Score | null;
}
// Of outcomes that are points, there are only their squared errors; of numbers also these.
export type Score = Calibration & {
  squared_error?: number; interval?: [number, number]; crps?: number; coverage?: Record<string, number>;
  width?: Record<string, number>; bias?: number;
};
