import { describe, expect, test } from "vitest";
import { startS3 } from "../../api/testing/start-s3.ts";
import { startWorker } from "../../api/testing/start-worker.ts";
import { forgetPeak, peakBytes, residentBytes } from "../../agent/testing/process-use.ts";
import { arrivesWhole, flatBytes, run, store, storeTwo } from "../testing/large-files.ts";
import { needs } from "../testing/needs.ts";
import { startTestService, startTestServiceOn } from "../testing/test-service.ts";

describe("api/node.ts over S3", needs("swift"), () => {
  test("twice 100 MiB from containers to a bucket, and to clients: agent and API stay as small as they were", async () => {
    await using ends = new AsyncDisposableStack();
    const s3 = await startS3();
    ends.defer(() => s3.close());
    const service = ends.use(await startTestService({ api: s3.vars }));
    const agent = await service.startAgent();
    await run(service, "print(1)");
    const processes = [service.api().child.pid!, agent.process.pid!];
    const before = processes.map(residentBytes);
    processes.forEach(forgetPeak);
    const files = await storeTwo(service);
    expect(await s3.keys()).toHaveLength(2);
    await Promise.all(files.map(arrivesWhole));
    for (const [i, pid] of processes.entries()) {
      expect(peakBytes(pid) - before[i]!).toBeLessThan(flatBytes);
    }
  });
});

describe("api/worker.ts in workerd", () => {
  test("100 MiB from a container to R2, and to a client", async () => {
    await using service = await startTestServiceOn(startWorker);
    await service.startAgent();
    const stored = await store(service);
    expect(stored.sha256).toMatch(/^[0-9a-f]{64}$/);
    await arrivesWhole(stored);
  });
});
