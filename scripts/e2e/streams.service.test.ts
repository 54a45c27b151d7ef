import { createHash } from "node:crypto";
import { once } from "node:events";
import { get, type IncomingMessage } from "node:http";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { NodeProcess } from "../../api/testing/start-node.ts";
import { startS3 } from "../../api/testing/start-s3.ts";
import { startWorker } from "../../api/testing/start-worker.ts";
import {
  forgetPeak,
  openDescriptors,
  peakBytes,
  residentBytes,
} from "../../agent/testing/process-use.ts";
import { needs } from "../testing/needs.ts";
import { startTestService, startTestServiceOn, type TestService } from "../testing/test-service.ts";

const mib = 1024 * 1024;
/** What two streams of 100 MiB may take, less than held whole: V8 collects buffers each time that 64 MiB more are there. */
const flatBytes = 160 * mib;

/** Writes 100 MiB that no two offsets share, and prints their SHA-256. */
const writesMuch = `
import hashlib
sha256 = hashlib.sha256()
with open("/output/much.bin", "wb") as file:
    for n in range(100 * 1024):
        block = hashlib.sha512(n.to_bytes(8, "big")).digest() * 16
        sha256.update(block)
        file.write(block)
print(sha256.hexdigest())
`;

/** The file that one job left. */
interface Stored {
  readonly url: string;
  readonly jobId: string;
  readonly sha256: string;
}

async function run(service: TestService, code: string) {
  const result = await service.execute(code, { timeout: 60 });
  expect(result).toMatchObject({ success: true });
  return result as { job_id: string; stdout: string };
}

async function store(service: TestService): Promise<Stored> {
  const { job_id, stdout } = await run(service, writesMuch);
  return { url: service.url, jobId: job_id, sha256: stdout.trim() };
}

/** Two at once, each with a file of its own. */
function storeTwo(service: TestService): Promise<Stored[]> {
  return Promise.all([store(service), store(service)]);
}

async function download({ url, jobId }: Stored, headers = {}): Promise<IncomingMessage> {
  const request = get(`${url}/jobs/${jobId}/artifacts/much.bin`, { headers, agent: false });
  const [response] = (await once(request, "response")) as [IncomingMessage];
  return response;
}

async function hashOf(stream: AsyncIterable<Buffer>): Promise<{ sha256: string; size: number }> {
  const hash = createHash("sha256");
  let size = 0;
  for await (const chunk of stream) {
    hash.update(chunk);
    size += chunk.length;
  }
  return { sha256: hash.digest("hex"), size };
}

async function arrivesWhole(stored: Stored): Promise<void> {
  const whole = await hashOf(await download(stored));
  expect(whole).toEqual({ sha256: stored.sha256, size: 100 * mib });
  const part = await download(stored, { Range: `bytes=${50 * mib}-${90 * mib - 1}` });
  expect(part.statusCode).toBe(206);
  expect((await hashOf(part)).size).toBe(40 * mib);
}

describe("api/node.ts", () => {
  let service: TestService<NodeProcess>;
  let files: Stored[];
  let pids: { api: number; agent: number };

  beforeAll(async () => {
    service = await startTestService();
    const agent = await service.startAgent();
    await run(service, "print(1)");
    pids = { api: service.api().child.pid!, agent: agent.process.pid! };
  });
  afterAll(() => service?.[Symbol.asyncDispose]());

  test("twice 100 MiB from containers to the store: agent and API stay as small as they were", async () => {
    const before = { api: residentBytes(pids.api), agent: residentBytes(pids.agent) };
    Object.values(pids).forEach(forgetPeak);
    files = await storeTwo(service);
    expect(peakBytes(pids.agent) - before.agent).toBeLessThan(flatBytes);
    expect(peakBytes(pids.api) - before.api).toBeLessThan(flatBytes);
  });

  test("twice 100 MiB, and a range of them, from the store to clients", async () => {
    const before = residentBytes(pids.api);
    forgetPeak(pids.api);
    await Promise.all(files.map(arrivesWhole));
    expect(peakBytes(pids.api) - before).toBeLessThan(flatBytes);
  });

  test("a client that does not read occupies no memory, and no descriptor after it hangs up", async () => {
    const descriptors = openDescriptors(pids.api);
    const before = residentBytes(pids.api);
    forgetPeak(pids.api);
    const lazy = await Promise.all(Array.from({ length: 8 }, () => download(files[0]!)));
    for (const response of lazy) await once(response, "readable");
    // A connection and a file each. The agent's own connections come and go meanwhile: fewer than eight of them.
    expect(openDescriptors(pids.api)).toBeGreaterThan(descriptors + 8);
    // Served in full meanwhile: whatever the others were to get has had its time.
    await arrivesWhole(files[0]!);
    expect(peakBytes(pids.api) - before).toBeLessThan(flatBytes);
    for (const response of lazy) response.destroy();
    await expect
      .poll(() => openDescriptors(pids.api), { timeout: 30_000 })
      .toBeLessThan(descriptors + 8);
  });
});

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
