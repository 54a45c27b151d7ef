import * as fc from "fast-check";
import { expect, test } from "vitest";
import { tempFolder } from "../../shared/testing/test-file.ts";
import { anySessionStep, SessionWorld } from "../testing/session-world.ts";
import { makeStart } from "../testing/store-world.ts";

const folder = tempFolder();
const startFile = await makeStart(folder);

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
  const steps = fc.array(anySessionStep, { minLength: 40, maxLength: 60, size: "max" });
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
