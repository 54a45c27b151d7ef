import { globSync } from "node:fs";
import { matchesGlob } from "node:path";
import { wrongArguments } from "../operate/command.ts";
import { type Tier, tiers } from "../setup/tools.ts";

/** Tiers that run side by side: most of their tests wait for another process. */
export const stages: readonly (readonly Tier[])[] = [
  ["unit"],
  ["service", "engine", "zygote"],
  ["lab"],
];

export const testFiles = "{api,agent,shared,scripts,clients}/**/*.test.ts";

/**
 * Tests that the lab repeats with another runtime, on another platform, in another setting, or with more random
 * requests.
 */
export const repeatedFiles = `{${[
  "agent/work/run.engine",
  "agent/sandbox/hostile/*",
  "agent/sandbox/{sessions,session-calls,usage}.engine",
  "api/tests/{docs,fuzz}.service",
  "scripts/lab/{job-types,sessions,whole}.engine",
  "scripts/lab/soak/tenants.engine",
].join()}}.test.ts`;

/** Tests of sandboxes that can be forked: the engine tier starts each sandbox, the zygote tier forks it. */
export const sandboxFiles =
  "agent/sandbox/{hostile/*,conversation,install-packages,sessions,session-calls,usage}.engine.test.ts";

/**
 * The tier of a test file is in its name: `x.service.test.ts`; one that says nothing is a unit test. What is the same
 * in a fork and in a container is a test of the zygote tier alone, because a fork takes a fifth of the CPU time.
 */
export function tiersOf(file: string): Tier[] {
  const own = tiers.find((tier) => file.endsWith(`.${tier}.test.ts`)) ?? "unit";
  const again: Tier[] = [];
  if (matchesGlob(file, sandboxFiles)) again.push("zygote");
  if (matchesGlob(file, repeatedFiles)) again.push("lab");
  return [own, ...again];
}

export const HELP = `Usage: npm test [-- [--no-check] [path …] [options of vitest, such as -t "part of a title"]]

Runs format, lint and type checks and the tests of the tiers unit, service, engine and zygote. Set-up comes first and
gets what these tiers need.

  npm run test:unit        unit tests only; they need nothing but npm
  npm run test:all         all tiers: the lab too, which needs root and time
  npm test -- path         the test files of that path, whatever their tier, without the checks
  npm test -- --tier=lab   one tier, without the checks
`;

/** \`npm test\` runs these; the lab takes longer and needs root. */
const usual: readonly Tier[] = ["unit", "service", "engine", "zygote"];

type TestArguments = {
  help: boolean;
  checks: boolean;
  /** In which there are files to run. */
  tiers: Tier[];
  /** A title or a line chooses rows, and skips the others of a file. */
  choosesRows: boolean;
  vitest: string[];
};

/** Throws OperatorError where the arguments choose no file. */
export function readTestArguments(
  args: string[],
  files: string[] = globSync(testFiles),
): TestArguments {
  const vitest = args.filter((arg) => !arg.startsWith("--tier=") && !OWN.has(arg));
  const paths = positionals(vitest);
  const asked = args.flatMap((arg) => tiers.filter((tier) => arg === `--tier=${tier}`));
  const unknown = args.find(
    (arg) => arg.startsWith("--tier=") && !tiers.some((tier) => arg === `--tier=${tier}`),
  );
  if (unknown) throw wrongArguments(`${unknown} names none of ${tiers.join(", ")}`, "npm test");

  const allowed =
    asked.length > 0 ? asked : args.includes("--all") || paths.length > 0 ? tiers : usual;
  const found = files.filter((file) => isChosen(file, paths)).flatMap(tiersOf);
  const chosen = tiers.filter((tier) => allowed.includes(tier) && found.includes(tier));
  if (chosen.length === 0)
    throw wrongArguments(`no test file matches ${paths.join(", ")}`, "npm test");
  return {
    help: args.includes("--help") || args.includes("-h"),
    checks: vitest.length === 0 && asked.length === 0 && !args.includes("--no-check"),
    tiers: chosen,
    choosesRows: vitest.some((arg) => TITLE.test(arg)) || paths.some((path) => LINE.test(path)),
    vitest,
  };
}

const OWN = new Set(["--no-check", "--all", "--help", "-h"]);
/** The option of vitest that chooses titles; its value may be the next argument. */
const TITLE = /^(-t|--testNamePattern)(=|$)/;
const LINE = /:\d+$/;

function positionals(args: string[]): string[] {
  return args.filter((arg, i) => !arg.startsWith("-") && !TITLE.test(args[i - 1] ?? ""));
}

/** As vitest chooses: a path that contains the text, which may end with a line's number. */
function isChosen(file: string, paths: string[]): boolean {
  return (
    paths.length === 0 ||
    paths.some((path) => file.includes(path.replace(/^\.\//, "").replace(LINE, "")))
  );
}
