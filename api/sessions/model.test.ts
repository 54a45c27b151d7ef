import * as fc from "fast-check";
import { expect, test } from "vitest";
import { tempFolder } from "../../shared/testing/test-file.ts";
import { type SessionStep, SessionWorld, ttlMs } from "../testing/session-world.ts";
import { makeStart } from "../testing/store-world.ts";

const folder = tempFolder();
const startFile = await makeStart(folder);

const kind = <K extends SessionStep["do"]>(...names: K[]) => ({ do: fc.constantFrom(...names) });
const agent = fc.constantFrom("a" as const, "b" as const);
const pick = fc.nat({ max: 3 });

/** Mostly steps on the way to a session that serves calls. */
const step: fc.Arbitrary<SessionStep> = fc.oneof(
  { weight: 5, arbitrary: fc.record(kind("create")) },
  { weight: 6, arbitrary: fc.record({ ...kind("claim"), agent }) },
  { weight: 8, arbitrary: fc.record({ ...kind("ready"), pick }) },
  { weight: 8, arbitrary: fc.record({ ...kind("call"), pick }) },
  { weight: 8, arbitrary: fc.record({ ...kind("claim calls"), agent }) },
  { weight: 5, arbitrary: fc.record({ ...kind("finish call"), pick }) },
  { weight: 6, arbitrary: fc.record({ ...kind("release call", "cancel call"), pick }) },
  {
    weight: 3,
    arbitrary: fc.record({ ...kind("release", "end", "leave", "crash", "delete"), pick }),
  },
  {
    weight: 5,
    arbitrary: fc.record({ ...kind("pass"), ms: fc.constantFrom(1, 60, ttlMs, 2 * ttlMs) }),
  },
);

/** Outcomes that the runs must reach; otherwise they would prove little. */
const mustBeSeen = [
  "created",
  "full",
  "claim",
  "claim again",
  "ready: ready",
  "release: queued",
  "leave: queued",
  "leave: agent_stopped",
  "crash: queued",
  "crash: agent_lost",
  "end: engine_lost",
  "delete: deleted",
  "expire: queued",
  "expire: agent_lost",
  "lifetime: lifetime",
  "idle: idle",
  "call",
  "call refused",
  "claim calls",
  "finish call changed",
  "finish call changed, late",
  "finish call refused",
  "release call changed",
  "cancel call changed",
];

test("sessions and their calls do what the state machines say, whatever happens in any order", async () => {
  const seen = new Set<string>();
  const steps = fc.array(step, { minLength: 40, maxLength: 60, size: "max" });
  const property = fc.asyncProperty(steps, async (some) => {
    const world = await SessionWorld.open(startFile);
    try {
      for (const one of some) seen.add(await world.run(one));
    } finally {
      world.close();
    }
  });
  // The rarest of them comes about once in 200 runs.
  for (let round = 0; round < 20; round++) {
    await fc.assert(property, { numRuns: 100 });
    if (mustBeSeen.every((outcome) => seen.has(outcome))) break;
  }
  expect([...seen]).toEqual(expect.arrayContaining(mustBeSeen));
}, 300_000);
