import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { existsSync, mkdtempSync, rmSync, watch } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { describe, expect, test } from "vitest";
import { labels } from "../labels.ts";
import { openSandbox } from "../../container/open-sandbox.ts";
import { hostileCases } from "../testing/hostile.ts";
import { rawEngine } from "../testing/raw-engine.ts";
import { runIn } from "../testing/run-code.ts";
import { specWith } from "../testing/report.ts";
import type { RunReport } from "../report.ts";
import type { Sandbox } from "../sandbox.ts";

const soon = (): AbortSignal => AbortSignal.timeout(60_000);

hostileCases(({ place, runtime, isGvisor, agentName }) => {
  const agentId = randomUUID();

  function open(cpus = 1): Promise<Sandbox> {
    const { engine, image } = place();
    const owner = { agentId, agentName, leaseId: null };
    return openSandbox(engine, specWith({ image, runtime, labels: owner, cpus }), soon());
  }

  const kill = (id: string): Promise<unknown> => rawEngine.getContainer(id).kill();

  /** Its first process on the host, whose end no busy engine puts off. */
  async function processOf({ containerId }: Sandbox): Promise<number> {
    return (await rawEngine.getContainer(containerId).inspect()).State.Pid;
  }

  /** Runs code whose container is killed by what `when` arranges. */
  async function killed(
    code: string,
    when: (die: () => void, spoolDir: string) => { onStarted?: () => void; onOutput?: () => void },
    timeoutMs = 60_000,
  ): Promise<RunReport> {
    const sandbox = await open();
    const spoolDir = mkdtempSync(join(tmpdir(), "airlock-dying-"));
    const pid = await processOf(sandbox);
    let isKilled = false;
    const die = (): void => {
      if (isKilled) return;
      isKilled = true;
      if (existsSync(`/proc/${pid}`)) process.kill(pid, "SIGKILL");
    };
    try {
      const caps = { streamBytes: 1_000_000, artifactBytes: 100_000_000 };
      const options = { spoolDir, ...when(die, spoolDir) };
      return await runIn(sandbox, code, { job: { timeoutMs, caps }, options });
    } finally {
      await sandbox.close();
      rmSync(spoolDir, { recursive: true });
    }
  }

  describe("a container that is killed", () => {
    test("before it is ready: no sandbox, and an error that allows a retry", async () => {
      const filters = { label: [`${labels.agentId}=${agentId}`], event: ["start"] };
      const events = await rawEngine.getEvents({ filters });
      const lines = createInterface({ input: events });
      const killing = once(lines, "line").then(([line]) =>
        kill((JSON.parse(line as string) as { id: string }).id),
      );
      // So slow that the kill comes before it is ready, however busy the machine is.
      const opening = open(isGvisor ? 0.05 : 0.02);
      await expect(opening).rejects.toMatchObject({ name: "EngineError", transient: true });
      await killing;
      (events as unknown as { destroy(): void }).destroy();
    });

    test("while it waits: this is noticed, and it gets no job", async () => {
      const sandbox = await open();
      try {
        await kill(sandbox.containerId);
        await expect(runIn(sandbox, "")).rejects.toMatchObject({
          name: "EngineError",
          transient: true,
        });
        expect(sandbox.died.aborted).toBe(true);
      } finally {
        await sandbox.close();
      }
    });

    test("as the code starts: the run is lost", async () => {
      const report = await killed("import time; time.sleep(60)", (die) => ({ onStarted: die }));
      expect(report).toMatchObject({ ending: "lost", started: true, outOfMemory: false });
    });

    test("while the code prints: what was printed is kept", async () => {
      const code = `import os\nwhile True: os.write(1, b"partial\\n" * 100)`;
      const report = await killed(code, (die) => ({ onOutput: die }));
      expect(report).toMatchObject({ ending: "lost", outOfMemory: false, usage: null });
      expect(Buffer.from(report.stdout).toString()).toMatch(/^(partial\n)+/);
    });

    test("in the grace period between SIGTERM and SIGKILL", async () => {
      const code = `
import os, signal, time
def last(*_):
    os.write(1, b"asked")
    while True: time.sleep(1)
signal.signal(signal.SIGTERM, last)
while True: time.sleep(1)`;
      const report = await killed(code, (die) => ({ onOutput: die }), 2000);
      // If the news of the output takes longer than the grace period, the supervisor has already reported the end.
      expect(["lost", "timeout"]).toContain(report.ending);
      expect(Buffer.from(report.stdout).toString()).toBe("asked");
    });

    test("while its files are collected: the code's end is known, and files that arrived are kept", async () => {
      const code = `
open("a", "w").write("first")
for i in range(60): open("big%02d" % i, "wb").truncate(1_000_000)`;
      const report = await killed(code, (die, spoolDir) => {
        const watcher = watch(spoolDir, () => {
          watcher.close();
          die();
        });
        return {};
      });
      expect(report).toMatchObject({
        ending: "exited",
        exitStatus: 0,
        lostReason: expect.any(String) as string,
      });
      expect(report.artifacts.length).toBeLessThan(61);
    });
  });
});
