import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { OperatorError } from "../command/operator-error.ts";
import { toolEnv } from "../command/run-tool.ts";
import { RESULTS_FILE } from "./reporter.ts";
import type { RunResult } from "./results.ts";
import type { Tier } from "../setup/tools.ts";

/** Runs the tests of some tiers side by side. */
export async function runTests(
  tiers: readonly Tier[],
  args: readonly string[],
  env: Record<string, string> = {},
): Promise<RunResult> {
  const folder = mkdtempSync(join(tmpdir(), "airlock-test-"));
  const file = join(folder, "results.json");
  try {
    const projects = tiers.map((tier) => `--project=${tier}`);
    const reporters = ["--reporter=default", "--reporter=./scripts/test/reporter.ts"];
    const vitest = spawn(
      "vitest",
      ["run", "--passWithNoTests", ...projects, ...reporters, ...args],
      { stdio: "inherit", env: { ...toolEnv, ...env, [RESULTS_FILE]: file } },
    );
    const [code] = (await once(vitest, "exit")) as [number | null];
    if (!existsSync(file)) throw new OperatorError("vitest ended without a result, see above");
    const run = JSON.parse(readFileSync(file, "utf8")) as RunResult;
    const explained = run.errorsOutsideTests > 0 || run.files.some(({ failed }) => failed > 0);
    return code === 0 || explained ? run : { ...run, errorsOutsideTests: 1 };
  } finally {
    rmSync(folder, { recursive: true });
  }
}
