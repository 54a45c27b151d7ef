import { globSync } from "node:fs";
import { wrongArguments } from "../command/arguments.ts";
import { testFiles, tiersOf } from "./tiers.ts";
import { type Tier, tiers } from "../setup/tools.ts";

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

export type TestArguments = {
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
