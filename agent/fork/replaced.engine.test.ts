import { randomUUID } from "node:crypto";
import { expect, test, vi } from "vitest";
import { startForks } from "../sandbox/testing/backend.ts";
import { testEngine } from "../sandbox/testing/engine.ts";
import { openConversation } from "../sandbox/conversation/conversation.ts";
import { containersOf } from "../sandbox/testing/raw-engine.ts";
import { runIn } from "../sandbox/testing/run-code.ts";
import { specWith } from "../sandbox/testing/report.ts";
import { createMotherKeeper } from "./keep-mother.ts";
import { createZygotes } from "./zygotes.ts";
import type { Mother } from "./mother.ts";
import { createRootfsStore } from "../volume/rootfs.ts";

const agentName = `replaced-${randomUUID()}`;

test("a mother is replaced after a while, and ends with its last job", async () => {
  const { engine, image } = await testEngine();
  const labels = { agentId: randomUUID(), agentName, leaseId: null };
  const mother = { ...labels, memoryBytes: 2 ** 30, pids: 512 };
  const forks = startForks({ engine, image }, { mother, motherMs: 0 });
  const signal = AbortSignal.timeout(60_000);
  try {
    const [first, second] = [
      await forks.open(specWith({ image, labels }), signal),
      await forks.open(specWith({ image, labels, env: { OTHER: "kind" } }), signal),
    ];
    expect(second.containerId).not.toBe(first.containerId);
    for (const sandbox of [first, second]) {
      const report = await runIn(sandbox, "print('hi')");
      expect(Buffer.from(report.stdout).toString("utf8")).toBe("hi\n");
      await sandbox.close();
    }
    await vi.waitFor(async () => expect(await containersOf(agentName)).toHaveLength(1), {
      timeout: 30_000,
    });
  } finally {
    await forks.close();
  }
  expect(await containersOf(agentName)).toEqual([]);
});

test("a mother that is replaced while a zygote starts ends after the jobs that waited for it", async () => {
  const { engine, image } = await testEngine();
  const labels = { agentId: randomUUID(), agentName, leaseId: null };
  const volumes = { rootfs: "airlock-rootfs-tests", bundles: "airlock-bundles-tests" };
  const keeper = createMotherKeeper({
    engine,
    mother: { ...labels, ...volumes, slots: 1, memoryBytes: null, pids: 512 },
    motherImage: () => Promise.resolve(image),
    ids: [0x7000_0000, 65_536],
  });
  const retired = Promise.withResolvers<Mother>();
  const zygotes = createZygotes({
    engine,
    rootfs: createRootfsStore(keeper.volume),
    async mother() {
      const started = await keeper.current();
      const startZygote: Mother["startZygote"] = (order, limit) => {
        const zygote = started.startZygote(order, limit);
        started.retire();
        retired.resolve(started);
        return zygote;
      };
      return { ...started, startZygote };
    },
  });
  try {
    const { zygote } = await zygotes.of(specWith({ image, labels }));
    const limit = AbortSignal.timeout(60_000);
    const sizes = { memory: 2 ** 28, shm: 2 ** 20, writable: 2 ** 20 };
    const job = zygote.open({ ...sizes, pids: 32, cpus: 1, packages: "", files: [] });
    await openConversation(job.channel.link, limit);
    await job.close();
    const { died } = await retired.promise;
    await vi.waitFor(() => expect(died.aborted).toBe(true), 30_000);
  } finally {
    await keeper.close();
  }
});
