import type { Reporter, TestCase, TestModule } from "vitest/node";
import { type Tier, tiers } from "../setup/tools.ts";

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

type SkippedRow = {
  title: string;
  /** What this machine lacks; undefined where the test names nothing. */
  reason?: string | undefined;
};

type RetriedRow = {
  title: string;
  /** Message of the first try's error. */
  error: string;
};

type RunResult = { files: FileResult[]; errorsOutsideTests: number };

/** Something that did not run at all, with the reason. */
export type Unavailable = { what: string; files: number; reason: string };

/** What vitest cannot know of a run. */
export type Told = {
  unavailable: Unavailable[];
  /** Only some rows were chosen: vitest skips the others without a reason. */
  choosesRows: boolean;
};

/** Names the variable with what `npm test` tells the reporter, as JSON. */
export const TOLD = "TEST_TOLD";

/** A vitest reporter that prints the closing lines of `npm test`, and decides whether the run was green. */
export default class ClosingLines implements Reporter {
  readonly #startedAt = new Map<string, number>();
  readonly #endedAt = new Map<string, number>();

  onTestModuleQueued({ moduleId }: TestModule): void {
    this.#startedAt.set(moduleId, Date.now());
  }

  onTestModuleEnd({ moduleId }: TestModule): void {
    this.#endedAt.set(moduleId, Date.now());
  }

  onTestRunEnd(modules: readonly TestModule[], errors: readonly unknown[]): void {
    const { unavailable, choosesRows } = JSON.parse(process.env[TOLD]!) as Told;
    const files = modules.map((module) => this.#read(module, choosesRows));
    const run = { files, errorsOutsideTests: errors.length };
    process.stdout.write(`${closingLines(run, unavailable).join("\n")}\n`);
    const isCI = (process.env["CI"] ?? "") !== "";
    if (!isGreen(run, unavailable, isCI)) process.exitCode = 1;
  }

  #read(module: TestModule, choosesRows: boolean): FileResult {
    const rows = [...module.children.allTests()];
    const inState = (state: string) => rows.filter((row) => row.result().state === state);
    const failed = inState("failed").length;
    const isBroken = module.state() === "failed" && failed === 0;
    const startedAt = this.#startedAt.get(module.moduleId) ?? Date.now();
    return {
      file: module.relativeModuleId,
      tier: module.project.name as Tier,
      startedAt,
      endedAt: this.#endedAt.get(module.moduleId) ?? startedAt,
      passed: inState("passed").length,
      failed: failed + (isBroken ? 1 : 0),
      skipped: inState("skipped")
        .map((row) => ({ title: row.fullName, reason: whySkipped(row) }))
        .filter(({ reason }) => reason !== undefined || !choosesRows),
      retried: rows
        .filter((row) => row.diagnostic()?.flaky)
        .map((row) => ({ title: row.fullName, error: row.result().errors?.[0]?.message ?? "" })),
    };
  }
}

function whySkipped(row: TestCase): string | undefined {
  const result = row.result();
  return row.meta().cannot ?? (result.state === "skipped" ? result.note : undefined);
}

const SLOWEST = 10;

/** `N passed, N failed`, and how many were skipped if any. */
export function countLine(run: RunResult, unavailable: readonly Unavailable[] = []): string {
  const { passed, failed, skipped } = count(run, unavailable);
  return `${passed} passed, ${failed} failed${skipped ? `, ${skipped} skipped` : ""}`;
}

function count({ files, errorsOutsideTests }: RunResult, unavailable: readonly Unavailable[]) {
  const sum = (of: (file: FileResult) => number) => files.reduce((n, file) => n + of(file), 0);
  const missing = unavailable.reduce((n, { files }) => n + files, 0);
  return {
    passed: sum(({ passed }) => passed),
    failed: sum(({ failed }) => failed) + errorsOutsideTests,
    skipped: sum(({ skipped }) => skipped.length) + missing,
  };
}

/** Whether nothing failed and something ran; where nothing may be missing, as in CI, also nothing was skipped. */
export function isGreen(
  run: RunResult,
  unavailable: readonly Unavailable[],
  isCI: boolean,
): boolean {
  const { passed, failed, skipped } = count(run, unavailable);
  return failed === 0 && passed > 0 && !(isCI && skipped > 0);
}

/** The closing lines of each tier: its counts alone on a line, then its time. */
export function tierLines(all: readonly FileResult[]): string[] {
  return tiers.flatMap((tier) => {
    const files = all.filter((file) => file.tier === tier);
    if (files.length === 0) return [];
    const first = Math.min(...files.map(({ startedAt }) => startedAt));
    const last = Math.max(...files.map(({ endedAt }) => endedAt));
    return [
      `${tier}:`,
      countLine({ files, errorsOutsideTests: 0 }),
      `${tier} took ${seconds(last - first)} in ${files.length} files`,
    ];
  });
}

/** What is worth knowing about the whole run, and the counts of all of it in the last line. */
export function closingLines(run: RunResult, unavailable: readonly Unavailable[]): string[] {
  const { files, errorsOutsideTests } = run;
  return [
    ...section("slowest files", slowest(files)),
    ...section("passed at the second try", retried(files)),
    ...section("not possible on this machine", impossible(files, unavailable)),
    ...tierLines(files),
    ...(errorsOutsideTests ? [`${errorsOutsideTests} errors outside tests, see above`] : []),
    countLine(run, unavailable),
  ];
}

function slowest(files: readonly FileResult[]): string[] {
  return files
    .toSorted((one, other) => took(other) - took(one))
    .slice(0, SLOWEST)
    .map((file) => `${seconds(took(file)).padStart(8)}  ${file.file}`);
}

function retried(files: readonly FileResult[]): string[] {
  return files.flatMap(({ file, retried }) =>
    retried.flatMap(({ title, error }) => [
      `${file}: ${title}`,
      `  the first try failed: ${error.split("\n", 1)[0]}`,
    ]),
  );
}

/** Rows of one file with the same reason share a line. */
function impossible(files: readonly FileResult[], unavailable: readonly Unavailable[]): string[] {
  const rows = files.flatMap(({ file, skipped }) =>
    [...Map.groupBy(skipped, ({ title, reason }) => reason ?? `no reason given (${title})`)].map(
      ([reason, { length }]) => `${file}: ${length} rows: ${reason}`,
    ),
  );
  return [
    ...unavailable.map(({ what, files, reason }) => `${what} (${files} files): ${reason}`),
    ...rows,
  ];
}

function section(title: string, lines: string[]): string[] {
  return lines.length === 0 ? [] : [`${title}:`, ...lines.map((line) => `  ${line}`)];
}

const took = ({ startedAt, endedAt }: FileResult): number => endedAt - startedAt;

const seconds = (ms: number): string => `${(ms / 1000).toFixed(1)} s`;
