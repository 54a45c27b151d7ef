import { spawn } from "node:child_process";
import { once } from "node:events";
import { globSync } from "node:fs";
import {
  OperatorError,
  readConfig,
  runMain,
  runTool,
  say,
  testedRef,
  toolEnv,
} from "../operate/command.ts";
import { ensureScienceImage } from "../setup/derived-images.ts";
import { connect } from "../setup/engine.ts";
import { setUp } from "../setup/set-up.ts";
import { installTools, type Tier, toolsOf } from "../setup/tools.ts";
import { runChecks } from "./checks.ts";
import { type Told, TOLD } from "./reporter.ts";
import { HELP, readTestArguments, testFiles, tiersOf } from "./tiers.ts";

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
  if (!tiers.some(needsEngine)) return {};
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

const needsEngine = (tier: Tier): boolean => !["unit", "service"].includes(tier);

/** What of these tiers cannot run for this reason. */
function unavailable(tiers: readonly Tier[], reason: string): Told["unavailable"] {
  return tiers.map((tier) => {
    const files = globSync(testFiles).filter((file) => tiersOf(file).includes(tier)).length;
    return { what: `${tier} tests`, files, reason };
  });
}

/** HEAD, if the working tree has nothing else; undefined where there is no git too. */
async function cleanCommit(): Promise<string | undefined> {
  try {
    const status = await runTool("git", ["status", "--porcelain"]);
    const head = await runTool("git", ["rev-parse", "HEAD"]);
    return status.ok && status.output === "" && head.ok ? head.output.trim() : undefined;
  } catch {
    return undefined;
  }
}

await runMain(async () => {
  const args = readTestArguments(process.argv.slice(2));
  if (args.help) {
    process.stdout.write(HELP);
    return;
  }
  const before = await cleanCommit();
  const { dockerHost, noEngine } = await setUpTiers(args.tiers);
  const checked = !args.checks || (await runChecks());

  const possible = args.tiers.filter((tier) => noEngine === undefined || !needsEngine(tier));
  const impossible = args.tiers.filter((tier) => !possible.includes(tier));
  const told: Told = {
    unavailable: unavailable(impossible, noEngine ?? ""),
    choosesRows: args.choosesRows,
  };
  if (possible.length === 0) throw new OperatorError(noEngine ?? "");
  const projects = possible.map((tier) => `--project=${tier}`);
  const reporters = ["--reporter=default", "--reporter=./scripts/test/reporter.ts"];
  const env = dockerHost === undefined ? {} : { AIRLOCK_DOCKER_HOST: dockerHost };
  // The tiers run in the order of `stages`: vitest.config.ts.
  const vitest = spawn("vitest", ["run", ...projects, ...reporters, ...args.vitest], {
    stdio: "inherit",
    env: { ...toolEnv, ...env, [TOLD]: JSON.stringify(told) },
  });
  const [code] = (await once(vitest, "exit")) as [number | null];
  if (!checked) say("not all checks passed, see above the tests");
  process.exitCode = checked && code === 0 ? 0 : 1;
  const isAll = args.checks && impossible.length === 0;
  if (isAll && process.exitCode === 0 && before && before === (await cleanCommit()))
    await runTool("git", ["update-ref", testedRef, before]);
});
