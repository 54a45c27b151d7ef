import { writeFileSync } from "node:fs";
import type { Reporter, TestCase, TestModule } from "vitest/node";
import type { FileResult, RunResult } from "./results.ts";
import type { Tier } from "../setup/tools.ts";

/** Names the file that the results go to. */
export const RESULTS_FILE = "TEST_RESULTS_FILE";

/** A vitest reporter that writes what became of every file, for the closing lines of `npm test`. */
export default class ResultsReporter implements Reporter {
  readonly #startedAt = new Map<string, number>();
  readonly #endedAt = new Map<string, number>();

  onTestModuleQueued({ moduleId }: TestModule): void {
    this.#startedAt.set(moduleId, Date.now());
  }

  onTestModuleEnd({ moduleId }: TestModule): void {
    this.#endedAt.set(moduleId, Date.now());
  }

  onTestRunEnd(modules: readonly TestModule[], errors: readonly unknown[]): void {
    const file = process.env[RESULTS_FILE];
    if (file === undefined) throw new Error(`${RESULTS_FILE} must name a file`);
    const files = modules.map((module) => this.#read(module));
    const result: RunResult = { files, errorsOutsideTests: errors.length };
    writeFileSync(file, JSON.stringify(result));
  }

  #read(module: TestModule): FileResult {
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
      skipped: inState("skipped").map((row) => ({
        title: row.fullName,
        reason: reasonOf(row),
      })),
      retried: rows
        .filter((row) => row.diagnostic()?.flaky)
        .map((row) => ({ title: row.fullName, error: row.result().errors?.[0]?.message ?? "" })),
    };
  }
}

function reasonOf(row: TestCase): string | undefined {
  const result = row.result();
  return row.meta().cannot ?? (result.state === "skipped" ? result.note : undefined);
}
