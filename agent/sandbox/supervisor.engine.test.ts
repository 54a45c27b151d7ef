import { spawnSync } from "node:child_process";
import { describe, expect, test } from "vitest";
import { needsThroughout } from "../../scripts/testing/needs.ts";
import { openConversation } from "./conversation/conversation.ts";
import { pid1Command, supervisorProgram } from "../python/program.ts";
import { files, openOnHost, runOnHost, slowToImport, startForFile } from "./testing/host-run.ts";
import { runIn } from "./testing/run-code.ts";

// A supervisor on this machine has its own namespaces.
needsThroughout("root", "ip");

test("it refuses to start outside a container of its own", () => {
  const [file = "", ...args] = pid1Command;
  const refused = spawnSync(file, args, { encoding: "utf8", input: supervisorProgram([]) });
  expect(refused.status).toBe(1);
  expect(refused.stderr).toMatch(/^not PID 1/);
});

describe("the end of the code", () => {
  test("code may clean up within the grace period, and still counts as timed out", async () => {
    const report = await runOnHost(
      `import signal, sys, time
def tidy(*_):
    open("last.txt", "w").write("words")
    sys.exit(0)
signal.signal(signal.SIGTERM, tidy)
time.sleep(60)`,
      { timeoutMs: 1500 },
    );
    expect(report).toMatchObject({ ending: "timeout", exitStatus: 0 });
    expect(files(report)).toEqual({ "last.txt": "words" });
  });

  test("when the agent ends, everything ends", async () => {
    const { link, conversation } = await openOnHost();
    const running = runIn(conversation, `import time\nprint("on", flush=True)\ntime.sleep(60)`, {
      options: { onOutput: () => link.destroy() },
    });
    expect(await running).toMatchObject({ ending: "lost", started: true });
    await link.ended;
  });

  test("time and memory are counted for the code and its children, not for the start", async () => {
    const report = await runOnHost(`
import subprocess, sys, time
subprocess.run([sys.executable, "-c", """
import time
x = b"x" * 60_000_000
while time.process_time() < 0.4: pass
"""])
time.sleep(0.2)`);
    const { cpuTimeMs = 0, wallTimeMs = 0, maxRssBytes = 0 } = report.usage ?? {};
    expect(cpuTimeMs).toBeGreaterThan(390);
    expect(cpuTimeMs).toBeLessThan(1000);
    expect(wallTimeMs).toBeGreaterThan(600);
    expect(maxRssBytes).toBeGreaterThan(60_000_000);
    expect(maxRssBytes).toBeLessThan(100_000_000);
    const idle = await runOnHost("", { preload: slowToImport });
    expect(idle.usage?.cpuTimeMs).toBeLessThan(60);
  });
});

describe("stdout and stderr", () => {
  test("up to the cap nothing is lost", async () => {
    const report = await runOnHost(
      `import os; os.write(1, b"x" * 1000); os.write(2, b"y" * 1000)`,
      {
        caps: { streamBytes: 1000 },
      },
    );
    expect(report).toMatchObject({ stdoutTruncated: false, stderrTruncated: false });
    expect([report.out, report.err]).toEqual(["x".repeat(1000), "y".repeat(1000)]);
  });

  test("beyond the cap the middle of each stream is left out", async () => {
    const report = await runOnHost(
      `import os\nfor i in range(1000): os.write(1, b"%04d " % i)\nos.write(2, b"small")`,
      { caps: { streamBytes: 20 } },
    );
    expect(report).toMatchObject({ stdoutTruncated: true, stderrTruncated: false, err: "small" });
    expect(report.out).toBe("0000 0001 \n[airlock: 4980 bytes left out]\n0998 0999 ");
  });

  test.each([1, 3, 64])(
    "no character is cut, if the code writes %s bytes at a time",
    async (size) => {
      const code = `
import os
text = ("é" + "€" * 3 + "😀" * 5).encode() * 100
for at in range(0, len(text), ${size}): os.write(1, text[at:at + ${size}])`;
      for (const streamBytes of [31, 32, 33, 34]) {
        const pieces: Buffer[] = [];
        const onOutput = (_: string, bytes: Uint8Array): void =>
          void pieces.push(Buffer.from(bytes));
        const { out } = await runOnHost(code, { caps: { streamBytes }, options: { onOutput } });
        const leftOut = Number(
          /^[é€😀]+\n\[airlock: (\d+) bytes left out\]\n[é€😀]+$/u.exec(out)?.[1],
        );
        expect(leftOut + Buffer.byteLength(out.replace(/\n.*\n/, ""))).toBe(3100);
        expect(pieces.map(String).join("")).toBe(out);
      }
    },
  );

  test("an odd cap is kept, and so is a cap of 0", async () => {
    const code = `import os; os.write(1, b"abcdefgh")`;
    expect(await runOnHost(code, { caps: { streamBytes: 5 } })).toMatchObject({
      out: "abc\n[airlock: 3 bytes left out]\ngh",
    });
    expect(await runOnHost(code, { caps: { streamBytes: 0 } })).toMatchObject({
      out: "\n[airlock: 8 bytes left out]\n",
    });
  });

  test("a flood runs to its end without filling the supervisor's memory", async () => {
    const report = await runOnHost(`
import os
for _ in range(3000): os.write(1, b"x" * 100_000)
os.write(2, b"y" * 50_000_000)
peak = next(line for line in open("/proc/1/status") if line.startswith("VmHWM"))
print(peak, end="")`);
    expect(report).toMatchObject({ exitStatus: 0, stdoutTruncated: true, stderrTruncated: true });
    expect(Number(/VmHWM:\s+([0-9]+) kB\n$/.exec(report.out)?.[1])).toBeLessThan(40_000);
  });

  test("an agent that does not read does not stop the clock", async () => {
    const blocked = startForFile();
    const { promise: gate, resolve: resume } = Promise.withResolvers<void>();
    async function* slowly() {
      let isHeld = false;
      for await (const chunk of blocked.output) {
        yield chunk;
        if (isHeld) continue;
        isHeld = Buffer.from(chunk).includes("flood");
        if (isHeld) await gate;
      }
    }
    const conversation = await openConversation(
      { ...blocked, output: slowly() },
      AbortSignal.timeout(30_000),
    );
    const running = runIn(
      conversation,
      `import os\nos.write(1, b"flood")\nwhile True: os.write(1, b"x" * 100_000)`,
      { job: { timeoutMs: 300, caps: { streamBytes: 100_000_000, artifactBytes: 0 } } },
    );
    const heldMs = 6000;
    setTimeout(resume, heldMs);
    const report = await running;
    expect(report.ending).toBe("timeout");
    expect(report.executionMs).toBeLessThan(heldMs - 500);
  });
});
