import { globSync } from "node:fs";
import { runMain } from "./command/operator-error.ts";
import { say } from "./command/say.ts";
import { HELP, readTestArguments } from "./test/arguments.ts";
import { runChecks } from "./test/checks.ts";
import type { FileResult, RunResult } from "./test/results.ts";
import { runTests } from "./test/run-tests.ts";
import { needsEngine, setUpTiers } from "./test/set-up-tiers.ts";
import { closingLines, isGreen, tierLines, type Unavailable } from "./test/summary.ts";
import { stages, testFiles, tiersOf } from "./test/tiers.ts";

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
