import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, globSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { OperatorError, readConfig, runMain, say, toolEnv } from "../operate/command.ts";
import { ensureScienceImage } from "../setup/derived-images.ts";
import { connect } from "../setup/engine.ts";
import { setUp } from "../setup/set-up.ts";
import { installTools, type Tier, toolsOf } from "../setup/tools.ts";
import { runChecks } from "./checks.ts";
import {
  closingLines,
  type FileResult,
  isGreen,
  RESULTS_FILE,
  type RunResult,
  tierLines,
  type Unavailable,
} from "./reporter.ts";
import { HELP, readTestArguments, stages, testFiles, tiersOf } from "./tiers.ts";

type SetUpTiers = {
  dockerHost?: string;
  /** Why tests on containers cannot run here. */
  noEngine?: string;
};

/** Gets what these tiers need and no more. A tool that cannot be installed is for the tests to tell. */
async function setUpTiers(tiers: readonly Tier[]): Promise<SetUpTiers> {
  try {
    await installTools(toolsOf(tiers));
  } catch (error) {
    if (!(error instanceof OperatorError)) throw error;
    say(`not all tools could be installed: ${error.message}`);
  }
  if (!needsEngine(tiers)) return {};
  try {
    const { dockerHost, image } = await setUp(readConfig(process.env));
    say(`testing against the engine at ${dockerHost} with the image ${image}`);
    await ensureScienceImage(connect(dockerHost));
    return { dockerHost };
  } catch (error) {
    if (!(error instanceof OperatorError)) throw error;
    return { noEngine: error.message };
  }
}

function needsEngine(tiers: readonly Tier[]): boolean {
  return (["engine", "zygote", "lab"] as const).some((tier) => tiers.includes(tier));
}

/** Runs the tests of some tiers side by side. */
async function runTests(
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

await runMain(async () => {
  const args = readTestArguments(process.argv.slice(2));
  if (args.help) {
    process.stdout.write(HELP);
    return;
  }
  const { dockerHost, noEngine } = await setUpTiers(args.tiers);
  const checked = !args.checks || (await runChecks());

  const run: RunResult = { files: [], errorsOutsideTests: 0 };
  const unavailable: Unavailable[] = [];
  for (const stage of stages) {
    const [possible, impossible] = partition(
      stage.filter((tier) => args.tiers.includes(tier)),
      (tier) => noEngine === undefined || !needsEngine([tier]),
    );
    for (const tier of impossible) {
      const files = globSync(testFiles).filter((file) => tiersOf(file).includes(tier)).length;
      unavailable.push({ what: `${tier} tests`, files, reason: noEngine ?? "" });
    }
    if (possible.length === 0) continue;
    const env = dockerHost === undefined ? {} : { AIRLOCK_DOCKER_HOST: dockerHost };
    const { files, errorsOutsideTests } = await runTests(possible, args.vitest, env);
    const chosen = args.choosesRows ? files.map(withoutUnchosen) : files;
    run.files.push(...chosen);
    run.errorsOutsideTests += errorsOutsideTests;
    print(tierLines(chosen));
  }

  if (!checked) say("not all checks passed, see above the tests");
  print(closingLines(run, unavailable));
  const isCI = (process.env["CI"] ?? "") !== "";
  process.exitCode = checked && isGreen(run, unavailable, isCI) ? 0 : 1;
});

/** Vitest skips the rows that were not chosen, without a reason. */
function withoutUnchosen(file: FileResult): FileResult {
  return { ...file, skipped: file.skipped.filter(({ reason }) => reason !== undefined) };
}

function partition<T>(all: readonly T[], isFirst: (one: T) => boolean): [T[], T[]] {
  return [all.filter(isFirst), all.filter((one) => !isFirst(one))];
}

function print(lines: readonly string[]): void {
  process.stdout.write(lines.map((line) => `${line}\n`).join(""));
}
