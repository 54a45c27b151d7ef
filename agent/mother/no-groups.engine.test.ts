import { randomUUID } from "node:crypto";
import { expect, test } from "vitest";
import type { Engine } from "../container/engine.ts";
import { startForks } from "../sandbox/testing/backend.ts";
import { testEngine } from "../sandbox/testing/engine.ts";
import { containersOf } from "../sandbox/testing/raw-engine.ts";
import { specWith } from "../sandbox/testing/report.ts";

test("a mother that cannot mount control groups fails with the reason, and its container is removed", async () => {
  const { engine, image } = await testEngine();
  const labels = { agentId: randomUUID(), agentName: `no-groups-${randomUUID()}`, leaseId: null };
  // Without the writable folder in which the mother mounts control groups.
  const create: Engine["create"] = (profile, signal) =>
    engine.create(
      { ...profile, HostConfig: { ...profile.HostConfig, Tmpfs: {} } } as never,
      signal,
    );
  const forks = startForks({ engine: { ...engine, create }, image }, { mother: labels });
  try {
    const opening = forks.open(specWith({ image, labels }), AbortSignal.timeout(60_000));
    await expect(opening).rejects.toThrow(/the mother ended: .*Read-only file system/s);
    await expect.poll(() => containersOf(labels.agentName), { timeout: 30_000 }).toEqual([]);
  } finally {
    await forks.close();
  }
});
