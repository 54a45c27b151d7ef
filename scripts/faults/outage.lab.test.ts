import { setTimeout as sleep } from "node:timers/promises";
import { createClient } from "@libsql/client";
import { describe, expect, test } from "vitest";
import { startTestService, type TestService } from "../testing/test-service.ts";

const outageMs = 90_000;

async function withoutApi(service: TestService): Promise<void> {
  await service.api().close();
  await sleep(outageMs);
  await service.startApi();
}

/** Another process has the lock of the database, so that nothing can be written. */
async function withoutDatabase({ folder }: TestService): Promise<void> {
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
    await using service = await startTestService();
    await service.startAgent("patient", { AIRLOCK_MAX_WORKERS: "2" });
    // One ends in the outage and is reported after it, one outlasts it.
    const ids = await Promise.all(
      [45, 120].map((s) =>
        service.submit(`import time; time.sleep(${s}); print("done")`, {}, { timeout: 600 }),
      ),
    );
    for (const id of ids) await service.untilBegun(id);
    await takeAway(service);
    for (const id of ids) {
      expect(await service.ended(id)).toMatchObject({ status: "succeeded", stdout: "done\n" });
    }
    const ledger = await service.ledger(ids.map((id) => ({ id, ends: ["succeeded"] })));
    expect(ledger).toMatchObject({ retried: 0, faults: [] });
  });
});
