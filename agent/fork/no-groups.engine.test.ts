import { randomUUID } from "node:crypto";
import { readdirSync } from "node:fs";
import { basename } from "node:path";
import { expect, test, vi } from "vitest";
import type { Engine } from "../engine/engine.ts";
import { startForks } from "../sandbox/testing/backend.ts";
import { testEngine } from "../sandbox/testing/engine.ts";
import { containersOf, rawEngine } from "../sandbox/testing/raw-engine.ts";
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

test.each([
  // The kernel takes a memory limit, but no quota below a millisecond.
  ["job", { cpus: 0.001 }, 1],
  ["zygote", { pids: -5 }, 2],
])(
  "a %s whose limits the kernel refuses never starts, and leaves no control group",
  async (_, wrong, zygotes) => {
    const place = await testEngine();
    const labels = { agentId: randomUUID(), agentName: "sandbox-tests-mother", leaseId: null };
    const forks = startForks(place, { mother: labels });
    const spec = specWith({ image: place.image, labels });
    const limit = AbortSignal.timeout(120_000);
    try {
      const sandbox = await forks.open(spec, limit);
      const { State } = await rawEngine.getContainer(sandbox.containerId).inspect();
      await sandbox.close();
      await expect(forks.open({ ...spec, ...wrong }, limit)).rejects.toThrow("Invalid argument");
      // Only zygotes have groups: the probe's, and that of the first job unless the failed job had it replaced.
      await vi.waitFor(() => expect(groupsOf(State.Pid)).toHaveLength(zygotes), 60_000);
      expect(groupsOf(State.Pid).filter((name) => name.startsWith("job"))).toEqual([]);
    } finally {
      await forks.close();
    }
  },
);

/** The control groups that a mother has made, on cgroup v1 and v2, by name. */
function groupsOf(pid: number): string[] {
  const folders = readdirSync(`/proc/${pid}/root/run/groups`, { recursive: true }) as string[];
  const names = folders.map((path) => basename(path)).filter((name) => /^(job|zygote)-/.test(name));
  return [...new Set(names)].sort();
}
