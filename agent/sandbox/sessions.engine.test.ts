import { once } from "node:events";
import { readdirSync } from "node:fs";
import { beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { sandboxRuntime } from "../testing/backend.ts";
import { testEngine } from "../testing/engine.ts";
import { deriveImage, rawEngine, removeImages } from "../testing/raw-engine.ts";
import { openSession } from "../testing/run-code.ts";

let place: Awaited<ReturnType<typeof testEngine>>;
beforeAll(async () => void (place = await testEngine()));
const isGvisor = sandboxRuntime === "runsc";

const still = { end: "succeeded - 0", shown: ["1"], err: "" };
const ended = "failed interpreter_ended null";

describe("the end of a call", () => {
  test("a call that is cancelled before it begins leaves nothing behind", async () => {
    const { call } = await openSession(place);
    await call("x = 1");
    const skipped = await call("x = 2", {}, { signal: AbortSignal.abort() });
    expect(skipped.end).toBe("cancelled cancelled 143");
    expect(await call("x")).toMatchObject(still);
  });

  test("a cancel that comes as a call begins ends that call only, also the first one of an interpreter", async () => {
    const { call } = await openSession(place);
    const cut = async (code: string, more = {}): Promise<string> => {
      const cancel = new AbortController();
      const options = { signal: cancel.signal, onStarted: () => cancel.abort() };
      return (await call(code, more, options)).end;
    };
    const loop = `${"y = [1, 2, 3]\n".repeat(300)}while True: pass`;
    const cancelled = "cancelled cancelled 143";
    expect(await cut(loop)).toBe(cancelled);
    await call("kept = []");
    for (let n = 1; n <= 20; n++) {
      expect(await cut(loop)).toBe(cancelled);
      expect(await call("kept.append(1)\nlen(kept)")).toMatchObject({ ...still, shown: [`${n}`] });
    }
    const other = { context: "other", contexts: ["other"] };
    expect(await cut(loop, other)).toBe(cancelled);
    expect(await call("len(kept)", { contexts: ["other"] })).toMatchObject({ shown: ["20"] });
    expect(await cut(loop, { restart: true })).toBe(cancelled);
    expect(await call("1")).toMatchObject(still);
  });

  test("a call that is cut before its interpreter listens leaves it to begin, however slowly", async () => {
    // A package of the job type takes its time when Python finds it.
    const image = await deriveImage(
      place.image,
      `folder=/opt/airlock/lib/python$(python3 -c 'import sys; print(*sys.version_info[:2], sep=".")')/site-packages
      mkdir -p $folder; echo "import time; time.sleep(4)" > $folder/slow.pth`,
    );
    onTestFinished(() => removeImages(image));
    const { call } = await openSession(place, { image });
    const cut = await call("x = 2", { timeoutMs: 500 });
    expect(cut.end).toBe("timeout execution_timeout null");
    expect(await call("x = 1\nx")).toMatchObject(still);
  });

  test("code that swallows the interrupt is killed: the sandbox stays, its interpreter has ended", async () => {
    const { call } = await openSession(place);
    await call("open('/tmp/kept', 'w').write('text')");
    const cut = await call(
      "while True:\n    try:\n        while True: pass\n    except BaseException: print('no', flush=True)",
      { timeoutMs: 500 },
    );
    expect(cut).toMatchObject({ end: "timeout execution_timeout null", out: "no\n" });
    expect(cut.report.exitSignal).toBe("SIGKILL");
    expect(await call("1")).toMatchObject({ end: ended, shown: [] });
    expect(await call("open('/tmp/kept').read()", { restart: true })).toMatchObject({
      end: "succeeded - 0",
      shown: ["'text'"],
    });
  });

  test.each([
    ["os._exit(3)", "failed runtime_error 3"],
    ["os._exit(0)", "succeeded - 0"],
    ["os.kill(os.getpid(), signal.SIGSEGV)", "failed segfault 139"],
    ["os.kill(os.getpid(), signal.SIGKILL)", "failed killed 137"],
    ...(isGvisor ? [] : [["x = b'x' * (1 << 30)", "oom oom 137"]]),
  ])("%s ends the interpreter, as it ends a job", async (code, end) => {
    const { call } = await openSession(place);
    const died = await call(`import os, signal\nprint("last words", flush=True)\n${code}`);
    expect(died).toMatchObject({ end, out: "last words\n" });
    expect((await call("1")).end).toBe(ended);
    expect(await call("1", { restart: true })).toMatchObject(still);
    expect(await call("os", { timeoutMs: 5000 })).toMatchObject({ end: "failed name_error 1" });
  });

  test("a restart waits for no process if none is left", async () => {
    const { call } = await openSession(place);
    await call("import os\nos._exit(3)");
    const began = performance.now();
    expect(await call("1", { restart: true })).toMatchObject(still);
    // PID 1 gives up waiting for processes after 5 s.
    expect(performance.now() - began).toBeLessThan(4500);
  });

  test("a forged exception with long names ends the interpreter, and PID 1 goes on", async () => {
    const { call } = await openSession(place);
    const forged = await call(
      "import os, threading\nmessage = b'e' + (1 << 18).to_bytes(4, 'big') + b'A' * (1 << 18)\nwriter = threading.Thread(target=os.write, args=(1023, message))\nwriter.start()\nwriter.join()",
      { timeoutMs: 5000 },
    );
    expect(forged.end).toBe("failed killed 137");
    expect(await call("1", { restart: true })).toMatchObject(still);
  });

  test("time is counted for its call only", async () => {
    const { call } = await openSession(place);
    const busy =
      "import time\nend = time.process_time() + 0.4\nwhile time.process_time() < end: pass";
    const first = await call(busy);
    expect(first.report.usage?.cpuTimeMs).toBeGreaterThan(390);
    const second = await call("x = b'x' * 50_000_000");
    expect(second.report.usage?.cpuTimeMs).toBeLessThan(390);
    expect(second.report.usage?.maxRssBytes).toBeGreaterThan(50_000_000);
  });
});

describe("output", () => {
  test("what threads and processes print between two calls begins the next one's output", async () => {
    const { call } = await openSession(place);
    const other = { context: "other", contexts: ["other"] };
    await call(`
import os, threading
done = threading.Event()
def late():
    while not os.path.exists("/tmp/go"): pass
    print("from a thread", flush=True)
    os.write(1, "x".encode() + "é".encode() * 100_000)
    open("/tmp/done", "w").close()
threading.Thread(target=late).start()`);
    // A call of another interpreter is no call of this one.
    await call(
      "import os\nopen('/tmp/go', 'w').close()\nwhile not os.path.exists('/tmp/done'): pass",
      other,
    );
    const next = await call("print('from the next call')", { contexts: ["other"] });
    expect(next.out).toMatch(
      /^from a thread\nxé+\n\[airlock: \d+ bytes left out\]\né*from the next call\n$/,
    );
    expect(next.out.length).toBeGreaterThan(32_768);
    expect(next.out.length).toBeLessThan(200_000);
  });

  test("each call has the whole cap, and its tail", async () => {
    const { call } = await openSession(place);
    const caps = { streamBytes: 1000, artifactBytes: 1000 };
    for (const letter of "ab") {
      const { out, report } = await call(`print("${letter}" * 5000 + "!")`, { caps });
      expect(out).toMatch(
        new RegExp(`^${letter}{500}\n\\[airlock: 4002 bytes left out\\]\n${letter}+!\n$`),
      );
      expect(report.stdoutTruncated).toBe(true);
    }
    expect((await call("print('short')", { caps })).report.stdoutTruncated).toBe(false);
  });

  test("a thread that prints without end does not keep a call from its end", async () => {
    const { call } = await openSession(place);
    const flood = await call(
      "import os, threading\ndef flood():\n    while True: os.write(1, b'x' * 4096)\nthreading.Thread(target=flood, daemon=True).start()",
      { timeoutMs: 20_000 },
    );
    expect(flood.end).toBe("succeeded - 0");
    expect(await call("1")).toMatchObject({ end: "succeeded - 0", shown: ["1"] });
    const cut = await call("while True: pass", { timeoutMs: 500 });
    expect(cut.end).toBe("timeout execution_timeout null");
  });
});

describe("contexts", () => {
  test("each has variables of its own, and all share the files", async () => {
    const { call } = await openSession(place);
    const other = { context: "other", contexts: ["other"] };
    await call("x = 1\nopen('/tmp/shared', 'w').write('text')");
    expect(await call("x", other)).toMatchObject({ end: "failed name_error 1" });
    expect(await call("x = 2\nopen('/tmp/shared').read()", other)).toMatchObject({
      shown: ["'text'"],
    });
    expect(await call("x", { contexts: ["other"] })).toMatchObject(still);
    expect(await call("x", other)).toMatchObject({ shown: ["2"] });
  });

  test("a restart ends one; one that is no longer listed has ended", async () => {
    const { call } = await openSession(place);
    const other = { context: "other", contexts: ["other"] };
    await call("x = 1");
    await call("import os\nx = 2\nopen('/tmp/pid', 'w').write(str(os.getpid()))", other);
    expect(await call("", { ...other, restart: true })).toMatchObject({ end: "succeeded - 0" });
    expect(await call("x", other)).toMatchObject({ end: "failed name_error 1" });
    expect(await call("x", { contexts: ["other"] })).toMatchObject(still);
    await call("x = 3\nimport os\nopen('/tmp/pid', 'w').write(str(os.getpid()))", other);
    const look = "import os\nos.path.exists('/proc/' + open('/tmp/pid').read())";
    expect(await call(look, { contexts: ["other"] })).toMatchObject({ shown: ["True"] });
    expect(await call(look)).toMatchObject({ shown: ["False"] });
    expect(await call("x", other)).toMatchObject({ end: "failed name_error 1" });
  });

  test("a restart ends what has left its interpreter's group, and nothing of another context", async () => {
    const { call } = await openSession(place);
    const other = { context: "other", contexts: ["other"] };
    const first = { contexts: ["other"] };
    const leave = (most: number) => `
import os, subprocess, time
p = subprocess.Popen(["sleep", "600"], start_new_session=True)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0: os.execvp("sleep", ["sleep", "600"])
    os._exit(0)
os.wait()
def sleepers(): return sum(open(f"/proc/{n}/cmdline").read().startswith("sleep") for n in os.listdir("/proc") if n.isdigit())
while sleepers() < ${most}: time.sleep(0.01)
sleepers()`;
    await call(leave(2), first);
    expect(await call(leave(4), other)).toMatchObject({ shown: ["4"] });
    await call("", { ...first, restart: true });
    expect(await call("sleepers(), p.poll()", other)).toMatchObject({ shown: ["(2, None)"] });
    await call(leave(4), first);
    await call("", { ...other, restart: true });
    expect(await call("sleepers(), p.poll()", first)).toMatchObject({ shown: ["(2, None)"] });
  });

  test("a restarted interpreter knows nothing of the one before, and has the session's environment", async () => {
    const { call } = await openSession(place, {}, { env: { OF: "session" } });
    await call(
      "import os, subprocess, sys\nx = 1\np = subprocess.Popen(['sleep', '60'], start_new_session=True)",
    );
    await call("os.environ['MORE'] = '1'");
    const next = await call(
      "import os, sys\n(os.environ['OF'], 'MORE' in os.environ, 'x' in globals(), 'subprocess' in sys.modules, [n for n in os.listdir('/proc') if n.isdigit() and n not in ('1', str(os.getpid()))])",
      { restart: true },
    );
    expect(next.shown).toEqual(["('session', False, False, False, [])"]);
  });
});

describe("programs", () => {
  const sh = (run: string[], compile: string[] = []) => ({
    program: { file: "main.sh", compile, compileTimeoutMs: 10_000, run },
  });

  test("a program runs beside the interpreter, which keeps its variables", async () => {
    const { call } = await openSession(place, {}, { env: { OF: "session" } });
    await call("x = 1");
    const ran = await call('echo "$OF $OWN $1"; cat; exit 3', {
      ...sh(["sh", "/code/main.sh"], ["sh", "-c", "echo compiled"]),
      env: { OWN: "call" },
      args: ["arg"],
      stdin: "input",
    });
    expect(ran).toMatchObject({ end: "failed runtime_error 3", out: "session call arg\ninput" });
    expect(ran.report.compiled).toMatchObject({ exitStatus: 0, stdout: "compiled\n" });
    expect(await call("x")).toMatchObject(still);
  });

  // gVisor's processes have no descriptors of the host.
  test.skipIf(isGvisor)(
    "programs, restarts and contexts leave no descriptors to PID 1",
    async () => {
      const { call, sandbox } = await openSession(place, {}, { backend: "engine" });
      const { State } = await rawEngine.getContainer(sandbox.containerId).inspect();
      const opened = (): number => readdirSync(`/proc/${State.Pid}/fd`).length;
      await call("1");
      const before = opened();
      const other = { context: "other", contexts: ["other"] };
      for (let n = 0; n < 4; n++) {
        await call("true", sh(["true"], ["true"]));
        await call("true", sh(["no-such-program"]));
        await call("1", other);
        await call("1", { restart: true });
      }
      expect(await call("1")).toMatchObject(still);
      expect(opened()).toBe(before);
    },
  );

  test("a cancel that comes as a program begins ends it at once", async () => {
    const { call } = await openSession(place);
    await call("x = 1");
    let killed = 0;
    for (let n = 0; n < 10; n++) {
      const cancel = new AbortController();
      const options = { signal: cancel.signal, onStarted: () => cancel.abort() };
      const { report } = await call("sleep 60", sh(["sh", "/code/main.sh"]), options);
      if (report.exitSignal === "SIGKILL") killed++;
    }
    // A busy machine may need the 2 s after which a command is killed. An interrupt that is lost needs them each time.
    expect(killed).toBeLessThan(8);
    expect(await call("x")).toMatchObject(still);
  });

  test("a program that does not end is killed with its group, and the interpreter stays", async () => {
    const { call } = await openSession(place);
    await call("x = 1");
    const cut = await call("trap '' INT; sleep 60 & wait; sleep 60", {
      ...sh(["sh", "/code/main.sh"]),
      timeoutMs: 500,
    });
    expect(cut.end).toBe("timeout execution_timeout null");
    expect(await call("x")).toMatchObject(still);
    const bad = await call("", { ...sh(["no-such-program"]) });
    expect(bad).toMatchObject({ end: "failed runtime_error 127" });
    const broken = await call("", sh(["true"], ["false"]));
    expect(broken.end).toBe("failed compile_error null");
    expect(await call("x")).toMatchObject(still);
  });
});

const underGvisor = isGvisor ? ["under gVisor"] : [];
test.each(underGvisor)("%s, too much memory ends the session with its call", async () => {
  const { call, sandbox } = await openSession(place);
  const died = once(sandbox.died, "abort");
  expect(await call("x = b'x' * (1 << 30)")).toMatchObject({ end: "oom oom 137" });
  await died;
  expect(await sandbox.whyDied()).toMatchObject({ outOfMemory: true });
  await expect(call("1")).rejects.toThrow("the supervisor ended");
});

const deaths: [string, boolean][] = [["x = 1", false]];
if (!isGvisor) deaths.push(["x = b'x' * (1 << 30)", true]);
test.each(deaths)(
  "PID 1 that is killed after the cell %s ends the session; out of memory: %s",
  async (code, outOfMemory) => {
    const { call, sandbox } = await openSession(place, {}, { backend: "engine" });
    await call(code);
    expect(sandbox.died.aborted).toBe(false);
    const died = once(sandbox.died, "abort");
    await rawEngine.getContainer(sandbox.containerId).kill();
    await died;
    expect(await sandbox.whyDied()).toMatchObject({ outOfMemory });
  },
);
