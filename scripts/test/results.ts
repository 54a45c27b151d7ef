import type { Tier } from "../setup/tools.ts";

/** What became of the rows of one test file. */
export type FileResult = {
  file: string;
  tier: Tier;
  /** From when its worker took it to its end, as Date.now() gives them. */
  startedAt: number;
  endedAt: number;
  passed: number;
  /** A file that could not be loaded counts as one. */
  failed: number;
  skipped: SkippedRow[];
  /** Rows that passed only when they were tried again. */
  retried: RetriedRow[];
};

export type SkippedRow = {
  title: string;
  /** What this machine lacks; undefined where the test names nothing. */
  reason?: string | undefined;
};

export type RetriedRow = {
  title: string;
  /** Message of the first try's error. */
  error: string;
};

/** What one run of vitest reports. */
export type RunResult = { files: FileResult[]; errorsOutsideTests: number };
