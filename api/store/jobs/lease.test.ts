import { expect, test } from "vitest";
import { leasedJob } from "../../testing/temp-store.ts";
import { store, useOneStore } from "../../testing/use-store.ts";
import { renewLeases } from "./lease.ts";
import { findExecution } from "./read.ts";

useOneStore();

test("a renewal writes nothing while it would give less than a hundredth of the lease's time", async () => {
  const job = await leasedJob(store.db);
  const leasedUntil = job.leaseExpiresAt!;
  const renewAfter = async (ms: number) => {
    const [now, expiresAt] = [1 + ms, leasedUntil + ms];
    const [lease] = await renewLeases(store.db, { agentId: "a", expiresAt, now }, [job.leaseId!]);
    expect(lease).toEqual({ leaseId: job.leaseId, cancelRequested: false, followedUntil: null });
    return (await findExecution(store.db, job.id))?.leaseExpiresAt;
  };
  expect(await renewAfter(9)).toBe(leasedUntil);
  expect(await renewAfter(11)).toBe(leasedUntil + 11);
});
