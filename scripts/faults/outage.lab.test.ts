import { setTimeout as sleep } from "node:timers/promises";
import { createClient } from "@libsql/client";
import { describe, expect, test } from "vitest";
import { agentName, type FaultWorld, startFaultWorld } from "../testing/fault-world.ts";

const outageMs = 90_000;

/** The times of leases that the configuration has by default. */
const defaultTimes = { AIRLOCK_LEASE_TTL_S: "", AIRLOCK_LIVENESS_S: "", AIRLOCK_POLL_WAIT_S: "" };

async function withoutApi(world: FaultWorld): Promise<void> {
  await world.api().close();
  await sleep(outageMs);
  await world.startApi();
}

/** Another process has the lock of the database, so that nothing can be written. */
async function withoutDatabase({ folder }: FaultWorld): Promise<void> {
  const client = createClient({ url: `file:${folder}/airlock.db` });
  const lock = await client.transaction("write");
  await sleep(outageMs);
  await lock.rollback();
  client.close();
}

describe.concurrent("fault 11: 90 s, with the default times of leases,", () => {
  test.each([
    ["the API", withoutApi],
    ["the database", withoutDatabase],
  ])("without %s end no running job: it has one attempt", async (_what, takeAway) => {
    await using world = await startFaultWorld(defaultTimes);
    await world.startAgent(agentName("patient"), { AIRLOCK_MAX_WORKERS: "2" });
    // One ends in the outage and is reported after it, one outlasts it.
    const ids = await Promise.all(
      [45, 120].map((s) =>
        world.submit(`import time; time.sleep(${s}); print("done")`, {}, { timeout: 600 }),
      ),
    );
    for (const id of ids) await world.untilBegun(id);
    await takeAway(world);
    for (const id of ids) {
      expect(await world.ended(id)).toMatchObject({ status: "succeeded", stdout: "done\n" });
    }
    const ledger = await world.ledger(ids.map((id) => ({ id, ends: ["succeeded"] })));
    expect(ledger).toMatchObject({ retried: 0, faults: [] });
  });
});
