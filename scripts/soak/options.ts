import { parseCommandLine } from "../command/arguments.ts";
import { OperatorError } from "../command/operator-error.ts";
import { type WorldName, worlds } from "./plan.ts";

export type SoakOptions = {
  readonly help: boolean;
  readonly minutes: number;
  readonly seed: number;
  readonly world: WorldName;
  /** Seconds from one fault to the next, on average. */
  readonly every: number;
};

export const soakHelp = `Usage: npm run soak -- [options]

Runs a whole service of its own, with two agents and a dockerd. Clients of three tenants, eight of each, and an
operator do everything that can be done with it at the same time: every endpoint, the protocols of other services,
MCP. Meanwhile its parts break at random. Each answer is compared with what its client knows, and has nothing of
another tenant. At the end, everything submitted has ended, once; each count equals a recount; nothing is left over.
Exit code 1 where that does not hold. Needs root.

Options:
      --minutes <n>   how long it breaks things (default 5)
      --seed <n>      the same seed makes the same plan of faults, and each client does the same
      --world <name>  file: an API on Node over a file (default); servers: two over a libSQL server;
                      workerd: the API in workerd
      --every <n>     seconds from one fault to the next, on average (default 12)
  -h, --help
`;

/** Reads the arguments of `npm run soak --`. Throws OperatorError on one that it does not know. */
export function parseSoakOptions(args: string[], newSeed: () => number): SoakOptions {
  const { values } = parseCommandLine("npm run soak", {
    args,
    options: {
      help: { type: "boolean", short: "h" },
      minutes: { type: "string" },
      seed: { type: "string" },
      world: { type: "string" },
      every: { type: "string" },
    },
  });
  return {
    help: values.help ?? false,
    minutes: number("minutes", values.minutes, 0.1) ?? 5,
    seed: number("seed", values.seed, 0) ?? newSeed(),
    world: worldOf(values.world ?? "file"),
    every: number("every", values.every, 1) ?? 12,
  };
}

function worldOf(text: string): WorldName {
  const world = worlds.find((name) => name === text);
  if (world) return world;
  throw new OperatorError(`--world ${text}: one of ${worlds.join(", ")} is needed`);
}

function number(name: string, text: string | undefined, least: number): number | undefined {
  if (text === undefined) return undefined;
  const value = Number(text);
  if (text !== "" && Number.isFinite(value) && value >= least) return value;
  throw new OperatorError(`--${name} ${text}: a number from ${least} on is needed`);
}
