import { uniformFloat64 } from "pure-rand/distribution/uniformFloat64";
import { xoroshiro128plus } from "pure-rand/generator/xoroshiro128plus";
import { OperatorError, parseCommandLine } from "../../operate/command.ts";

export type SoakOptions = ReturnType<typeof parseSoakOptions>;

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
export function parseSoakOptions(args: string[], newSeed: () => number) {
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
    /** Seconds from one fault to the next, on average. */
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

/** Something breaks at `atMs` and is mended `forMs` later. */
export type Fault = {
  readonly atMs: number;
  readonly kind: FaultKind["name"];
  /** Which of the parts that it can befall, such as the second agent. */
  readonly on: number;
  readonly forMs: number;
};

type PartName = "agent" | "api" | "database" | "engine" | "wire" | "disk" | "spool";

const second = 1000;

/** What can break: on which part, how often beside the others, for how long at least and at most. */
export const faultKinds = [
  { name: "agent killed", part: "agent", weight: 3, forMs: [0, 8 * second] },
  { name: "agent frozen", part: "agent", weight: 3, forMs: [1 * second, 14 * second] },
  { name: "agent told to stop", part: "agent", weight: 2, forMs: [0, 3 * second] },
  { name: "mother killed", part: "agent", weight: 1, forMs: [0, 0] },
  { name: "zygotes killed", part: "agent", weight: 1, forMs: [0, 0] },
  { name: "api killed", part: "api", weight: 3, forMs: [0, 8 * second] },
  { name: "api frozen", part: "api", weight: 2, forMs: [1 * second, 10 * second] },
  { name: "api told to stop", part: "api", weight: 2, forMs: [0, 3 * second] },
  { name: "database killed", part: "database", weight: 2, forMs: [0, 12 * second] },
  { name: "database frozen", part: "database", weight: 1, forMs: [1 * second, 12 * second] },
  { name: "engine killed", part: "engine", weight: 1, forMs: [0, 15 * second] },
  { name: "engine told to stop", part: "engine", weight: 1, forMs: [0, 15 * second] },
  { name: "wire cut", part: "wire", weight: 2, forMs: [1 * second, 14 * second] },
  { name: "wire cut from the agent", part: "wire", weight: 2, forMs: [1 * second, 14 * second] },
  { name: "wire cut to the agent", part: "wire", weight: 2, forMs: [1 * second, 14 * second] },
  { name: "wire loses packets", part: "wire", weight: 2, forMs: [4 * second, 20 * second] },
  { name: "wire slow", part: "wire", weight: 2, forMs: [4 * second, 20 * second] },
  { name: "disk full", part: "disk", weight: 1, forMs: [1 * second, 10 * second] },
  { name: "spool full", part: "spool", weight: 1, forMs: [1 * second, 10 * second] },
] as const satisfies readonly {
  name: string;
  part: PartName;
  weight: number;
  forMs: readonly [number, number];
}[];
type FaultKind = (typeof faultKinds)[number];

const worlds = ["file", "servers", "workerd"] as const;
export type WorldName = (typeof worlds)[number];
type Parts = Readonly<Record<PartName, number>>;

const all = { agent: 2, api: 2, database: 1, engine: 1, wire: 2, disk: 1, spool: 2 };
/** How many there are of each part that can break. */
export const partsOf: Readonly<Record<WorldName, Parts>> = {
  /** One API on Node over a file. */
  file: { ...all, api: 1, database: 0 },
  /** Two on Node over a libSQL server. */
  servers: all,
  /** The API in workerd, which nothing happens to. */
  workerd: { ...all, api: 0, database: 0, wire: 0, disk: 0 },
};

/** The faults of a run of this length, one each `everyMs` on average. No part is befallen by two at once. */
export function makePlan(seed: number, lengthMs: number, everyMs: number, parts: Parts): Fault[] {
  const possible = faultKinds.filter(({ part }) => parts[part] > 0);
  const { between, pick, weighted } = random(seed);
  const busyUntil = new Map<string, number>();
  const gapMs = [everyMs * 0.4, everyMs * 1.6] as const;
  const plan: Fault[] = [];
  for (let atMs = between(...gapMs); atMs < lengthMs; atMs += between(...gapMs)) {
    const kind = weighted<FaultKind>(possible);
    const on = pick([...Array(parts[kind.part]).keys()]);
    const forMs = Math.round(between(...(kind.forMs as readonly [number, number])));
    const part = `${kind.part} ${on}`;
    if ((busyUntil.get(part) ?? 0) > atMs) continue;
    busyUntil.set(part, atMs + forMs + second);
    plan.push({ atMs: Math.round(atMs), kind: kind.name, on, forMs });
  }
  return plan;
}

/** Numbers that look random and follow from a seed: the same seed gives the same. */
export type Random = {
  /** From 0 up to, but not including, 1. */
  readonly next: () => number;
  readonly between: (from: number, to: number) => number;
  readonly pick: <T>(items: readonly T[]) => T;
  /** By weight: an item of weight 2 comes twice as often as one of 1. */
  readonly weighted: <T extends { readonly weight: number }>(items: readonly T[]) => T;
};

export function random(seed: number): Random {
  const generator = xoroshiro128plus(seed);
  const next = (): number => uniformFloat64(generator);
  const pick = <T>(items: readonly T[]): T => items[Math.floor(next() * items.length)]!;
  return {
    next,
    between: (from, to) => from + next() * (to - from),
    pick,
    weighted: (items) => {
      const total = items.reduce((sum, { weight }) => sum + weight, 0);
      let left = next() * total;
      return items.find(({ weight }) => (left -= weight) < 0) ?? items.at(-1)!;
    },
  };
}
