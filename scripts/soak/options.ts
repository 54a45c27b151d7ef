import { parseCommandLine } from "../command/arguments.ts";
import { OperatorError } from "../command/operator-error.ts";

export type SoakOptions = {
  readonly help: boolean;
  readonly minutes: number;
  readonly seed: number;
  readonly clients: number;
  /** Seconds from one fault to the next, on average. */
  readonly every: number;
};

export const soakHelp = `Usage: npm run soak -- [options]

Runs a whole service of its own (two APIs over a libSQL server, two agents, a dockerd), breaks its parts
at random under load, and checks the books at the end: everything submitted has ended, once; the dead
letter queue is exact; nothing is left over. Exit code 1 where that does not hold. Needs root.

Options:
      --minutes <n>   how long it breaks things (default 5)
      --seed <n>      the same seed makes the same plan of faults and the same choice of jobs
      --clients <n>   clients at once (default 4)
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
      clients: { type: "string" },
      every: { type: "string" },
    },
  });
  return {
    help: values.help ?? false,
    minutes: number("minutes", values.minutes, 0.1) ?? 5,
    seed: number("seed", values.seed, 0) ?? newSeed(),
    clients: number("clients", values.clients, 1) ?? 4,
    every: number("every", values.every, 1) ?? 12,
  };
}

function number(name: string, text: string | undefined, least: number): number | undefined {
  if (text === undefined) return undefined;
  const value = Number(text);
  if (text !== "" && Number.isFinite(value) && value >= least) return value;
  throw new OperatorError(`--${name} ${text}: a number from ${least} on is needed`);
}
