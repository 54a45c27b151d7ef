import { createHash } from "node:crypto";
import { once } from "node:events";
import { get, type IncomingMessage } from "node:http";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type AgentProcess, startAgent } from "../../agent/testing/agent-process.ts";
import { type NodeProcess, startNode } from "../../api/testing/start-node.ts";
import { startS3 } from "../../api/testing/start-s3.ts";
import { startWorker } from "../../api/testing/start-worker.ts";
import {
  forgetPeak,
  openDescriptors,
  peakBytes,
  residentBytes,
} from "../../agent/testing/process-use.ts";
import { needs } from "../testing/needs.ts";

const token = "a-token-of-16-characters";
const vars = { AIRLOCK_AGENT_TOKENS: token, AIRLOCK_API_RATE_LIMIT_ENABLED: "false" };
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

interface Service {
  readonly url: string;
  readonly jobId: string;
  readonly sha256: string;
}

function startAgentOf(url: string): AgentProcess {
  return startAgent({
    AIRLOCK_API_URL: url,
    AIRLOCK_AGENT_TOKEN: token,
    AIRLOCK_AGENT_NAME: `streams-${process.pid}-${new URL(url).port}`,
    AIRLOCK_WARM_POOL_SIZE: "0",
    AIRLOCK_DOCKER_HOST: process.env["AIRLOCK_DOCKER_HOST"],
  });
}

async function runs(url: string, code: string) {
  const response = await fetch(`${url}/execute`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ code, timeout: 60 }),
  });
  const result = (await response.json()) as { job_id: string; stdout: string; success: boolean };
  expect(result).toMatchObject({ success: true });
  return result;
}

async function runsMuch(url: string): Promise<Service> {
  const result = await runs(url, writesMuch);
  return { url, jobId: result.job_id, sha256: result.stdout.trim() };
}

/** Two at once, each with a file of its own. */
function runBoth(url: string): Promise<Service[]> {
  return Promise.all([runsMuch(url), runsMuch(url)]);
}

async function download({ url, jobId }: Service, headers = {}): Promise<IncomingMessage> {
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

async function arrivesWhole(service: Service): Promise<void> {
  const whole = await hashOf(await download(service));
  expect(whole).toEqual({ sha256: service.sha256, size: 100 * mib });
  const part = await download(service, { Range: `bytes=${50 * mib}-${90 * mib - 1}` });
  expect(part.statusCode).toBe(206);
  expect((await hashOf(part)).size).toBe(40 * mib);
}

describe("api/node.ts", () => {
  let api: NodeProcess;
  let agent: AgentProcess;
  let services: Service[];
  let pids: { api: number; agent: number };

  beforeAll(async () => {
    api = await startNode(vars);
    agent = startAgentOf(api.url);
    await agent.ready;
    await runs(api.url, "print(1)");
    pids = { api: api.child.pid!, agent: agent.process.pid! };
  });
  afterAll(async () => {
    agent?.process.kill("SIGTERM");
    await agent?.exit;
    await api?.close();
  });

  test("twice 100 MiB from containers to the store: agent and API stay as small as they were", async () => {
    const before = { api: residentBytes(pids.api), agent: residentBytes(pids.agent) };
    Object.values(pids).forEach(forgetPeak);
    services = await runBoth(api.url);
    expect(peakBytes(pids.agent) - before.agent).toBeLessThan(flatBytes);
    expect(peakBytes(pids.api) - before.api).toBeLessThan(flatBytes);
  });

  test("twice 100 MiB, and a range of them, from the store to clients", async () => {
    const before = residentBytes(pids.api);
    forgetPeak(pids.api);
    await Promise.all(services.map(arrivesWhole));
    expect(peakBytes(pids.api) - before).toBeLessThan(flatBytes);
  });

  test("a client that does not read occupies no memory, and no descriptor after it hangs up", async () => {
    const descriptors = openDescriptors(pids.api);
    const before = residentBytes(pids.api);
    forgetPeak(pids.api);
    const lazy = await Promise.all(Array.from({ length: 8 }, () => download(services[0]!)));
    for (const response of lazy) await once(response, "readable");
    // A connection and a file each. The agent's own connections come and go meanwhile: fewer than eight of them.
    expect(openDescriptors(pids.api)).toBeGreaterThan(descriptors + 8);
    // Served in full meanwhile: whatever the others were to get has had its time.
    await arrivesWhole(services[0]!);
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
    const api = await startNode({ ...vars, ...s3.vars });
    ends.defer(() => api.close());
    const agent = startAgentOf(api.url);
    ends.defer(async () => {
      agent.process.kill("SIGTERM");
      await agent.exit;
    });
    await agent.ready;
    await runs(api.url, "print(1)");
    const processes = [api.child.pid!, agent.process.pid!];
    const before = processes.map(residentBytes);
    processes.forEach(forgetPeak);
    const services = await runBoth(api.url);
    expect(await s3.keys()).toHaveLength(2);
    await Promise.all(services.map(arrivesWhole));
    for (const [i, pid] of processes.entries()) {
      expect(peakBytes(pid) - before[i]!).toBeLessThan(flatBytes);
    }
  });
});

describe("api/worker.ts in workerd", () => {
  test("100 MiB from a container to R2, and to a client", async () => {
    const api = await startWorker(vars);
    const agent = startAgentOf(api.url);
    try {
      await agent.ready;
      const service = await runsMuch(api.url);
      expect(service.sha256).toMatch(/^[0-9a-f]{64}$/);
      await arrivesWhole(service);
    } finally {
      agent.process.kill("SIGTERM");
      await agent.exit;
      await api.close();
    }
  });
});
