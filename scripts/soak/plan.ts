import { random } from "./random.ts";

/** Something breaks at `atMs` and is mended `forMs` later. */
export type Fault = {
  readonly atMs: number;
  readonly kind: FaultKind["name"];
  /** Which of the parts that it can befall, such as the second agent. */
  readonly on: number;
  readonly forMs: number;
};

export type PartName = "agent" | "api" | "database" | "engine" | "wire" | "disk" | "spool";

const second = 1000;

/** What can break: on which part, how often beside the others, for how long at least and at most. */
export const faultKinds = [
  { name: "agent killed", part: "agent", weight: 3, forMs: [0, 8 * second] },
  { name: "agent frozen", part: "agent", weight: 3, forMs: [1 * second, 14 * second] },
  { name: "agent told to stop", part: "agent", weight: 2, forMs: [0, 3 * second] },
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
export type FaultKind = (typeof faultKinds)[number];

export const worlds = ["file", "servers", "workerd"] as const;
export type WorldName = (typeof worlds)[number];
export type Parts = Readonly<Record<PartName, number>>;

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
