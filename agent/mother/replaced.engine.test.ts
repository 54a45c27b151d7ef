import { randomUUID } from "node:crypto";
import { tmpdir } from "node:os";
import { expect, test, vi } from "vitest";
import { startForks } from "../sandbox/testing/backend.ts";
import { testEngine } from "../sandbox/testing/engine.ts";
import { containersOf } from "../sandbox/testing/raw-engine.ts";
import { specWith } from "../sandbox/testing/report.ts";

const agentName = `replaced-${randomUUID()}`;

test("a mother is replaced after a while, and ends with her last job", async () => {
  const { engine, image } = await testEngine();
  const labels = { agentId: randomUUID(), agentName, leaseId: null };
  const mother = { ...labels, memoryBytes: 2 ** 30, pids: 512 };
  const forks = startForks({ engine, image }, { mother, motherMs: 0 });
  const signal = AbortSignal.timeout(60_000);
  const job = { inputJson: "{}", timeoutMs: 60_000, caps: { streamBytes: 1000, artifactBytes: 0 } };
  try {
    const [first, second] = [
      await forks.open(specWith({ image, labels }), signal),
      await forks.open(specWith({ image, labels, env: { OTHER: "kind" } }), signal),
    ];
    expect(second.containerId).not.toBe(first.containerId);
    for (const sandbox of [first, second]) {
      const report = await sandbox.run(
        { ...job, code: "print('hi')" },
        { signal, spoolDir: tmpdir() },
      );
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
