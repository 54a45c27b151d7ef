import { describe, expect, test } from "vitest";
import { hostileCases } from "../testing/hostile.ts";

hostileCases(({ run, isGvisor }) => {
  test("hostile 1: an endless loop keeps what it printed", async () => {
    const code = `print("partial", flush=True)\nwhile True: pass`;
    const { end, out } = await run(code, { job: { timeoutMs: 2000 } });
    expect({ end, out }).toEqual({ end: "timeout execution_timeout null", out: "partial\n" });
  });

  test("hostile 2: code that ignores SIGTERM is gone within the grace period", async () => {
    const code = `
import signal, time
for s in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}: signal.signal(s, signal.SIG_IGN)
print("on", flush=True)
while True: time.sleep(60)`;
    const { end, out, report } = await run(code, { job: { timeoutMs: 2000 } });
    expect({ end, out }).toEqual({ end: "timeout execution_timeout null", out: "on\n" });
    // The time, and the grace; not the 15 s more after which the agent would give it up.
    expect(report.executionMs).toBeGreaterThanOrEqual(2500);
    expect(report.executionMs).toBeLessThan(15_000);
  });

  test("hostile 3: processes that hide and keep streams open", async () => {
    const { end } = await run(`
import os, signal, time
for _ in range(20):
    if os.fork() == 0:
        os.setsid()
        for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP): signal.signal(s, signal.SIG_IGN)
        if os.fork() == 0: time.sleep(600)
        os._exit(0)`);
    expect(end).toBe("succeeded - 0");
  });

  describe("hostile 4: bombs", () => {
    test("a fork bomb", async () => {
      const code = `import os\nwhile True:\n    try: os.fork()\n    except OSError: pass`;
      // Under gVisor each process costs memory of the same limit, however long that takes.
      const { end } = await run(code, { job: { timeoutMs: isGvisor ? 60_000 : 1500 } });
      expect(end).toBe(isGvisor ? "oom oom 137" : "timeout execution_timeout null");
    });

    test("a fork bomb whose first process ends", async () => {
      const code = `
import os
if os.fork(): os._exit(0)
while True:
    try: os.fork()
    except OSError: pass`;
      expect((await run(code)).end).toBe("succeeded - 0");
    });

    test("a thread bomb", async () => {
      const code = `import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(60,), daemon=True).start()`;
      expect((await run(code)).end).toBe("failed runtime_error 1");
    });
  });

  describe("hostile 10: signals to everyone", () => {
    test.each([1, -1])("kill(%i) does not reach the supervisor", async (pid) => {
      const { end, out } = await run(`
import os
try: os.kill(${pid}, 9)
except OSError as e: print(type(e).__name__)
print("alive")`);
      // The kernel lets kill(-1) spare the caller; gVisor's finds nobody else to signal.
      const refusal = pid === 1 ? "PermissionError\n" : "(PermissionError\n|ProcessLookupError\n)?";
      expect({ end, out }).toEqual({
        end: "succeeded - 0",
        out: expect.stringMatching(new RegExp(`^${refusal}alive\n$`)) as string,
      });
    });

    test("every signal at once, to every process and to the group", async () => {
      const { end } = await run(`
import os, signal
for number in signal.valid_signals():
    try: signal.signal(number, signal.SIG_IGN)
    except OSError: continue  # KILL and STOP would end or stop this process too
    for pid in (1, 0, -1, -os.getpgid(0)):
        try: os.kill(pid, number)
        except OSError: pass
os._exit(7)`);
      expect(end).toBe("failed runtime_error 7");
    });

    test("a job that stops itself", async () => {
      const code = `import os, signal; os.kill(os.getpid(), signal.SIGSTOP)`;
      const { end } = await run(code, { job: { timeoutMs: 500 } });
      expect(end).toBe("timeout execution_timeout null");
    });
  });

  test("hostile 12: a daemon that keeps stdout open after its parent's end", async () => {
    const { end, out } = await run(`
import os, time
print("parent", flush=True)
if os.fork() == 0:
    os.setsid()
    time.sleep(600)`);
    expect({ end, out }).toEqual({ end: "succeeded - 0", out: "parent\n" });
  });

  test("all descriptors closed, including the streams", async () => {
    const { end } = await run(`import os\nos.closerange(0, 4096)\nopen("x", "w").close()`);
    expect(end).toBe("succeeded - 0");
  });
});
