import { once } from "node:events";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { NodeProcess } from "../../api/testing/start-node.ts";
import {
  forgetPeak,
  openDescriptors,
  peakBytes,
  residentBytes,
} from "../../agent/testing/process-use.ts";
import {
  arrivesWhole,
  download,
  flatBytes,
  run,
  storeTwo,
  type Stored,
} from "../testing/large-files.ts";
import { startTestService, type TestService } from "../testing/test-service.ts";

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
