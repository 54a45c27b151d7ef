import { describe, expect, test } from "vitest";
import { hostileCases } from "../../testing/hostile.ts";
import { openSession } from "../../testing/run-code.ts";

hostileCases(({ place, runtime, isGvisor, agentName }) => {
  const open = (spec = {}) => openSession(place(), { runtime, ...spec }, { agentName });
  const works = { end: "succeeded - 0", shown: ["2"], out: "", err: "" };
  const ended = "failed interpreter_ended null";

  describe("hostile 57: cells that forge messages to PID 1", () => {
    const find = `
import os
fds = {int(fd) for fd in os.listdir("/proc/self/fd")}
tell, go = 1023, 1022
def message(kind, text): return kind + len(text).to_bytes(4, "big") + text`;

    test.each([
      ["of 4 GiB", `os.write(tell, b"y" + bytes([255] * 4))`],
      ["of an unknown kind", `os.write(tell, b"z" + bytes(4))`],
      ["an end with no status", `os.write(tell, message(b"x", b"a"))`],
      ["an end with a status that none has", `os.write(tell, message(b"x", b"999"))`],
      ["an exception of 16 MiB", `os.write(tell, b"e" + (16 << 20).to_bytes(4, "big"))`],
      ["a call of a tool", `os.write(tell, message(b"q", b"{}"))`],
      ["closed", `os.close(tell)`],
      ["its words closed", `os.close(go)`],
      ["both replaced", `os.dup2(os.open("/dev/zero", os.O_RDWR), tell); os.dup2(tell, go)`],
    ])("a message %s ends its interpreter at most", async (_what, code) => {
      await using session = await open();
      const { call } = session;
      await call("open('/tmp/kept', 'w').close()");
      const forged = await call(`${find}\n${code}\nimport time\ntime.sleep(0.2)`, {
        timeoutMs: 1500,
      });
      expect(forged.report.lostReason).toBeNull();
      await call("1", { timeoutMs: 1500 });
      expect((await call("1")).end).toBe(ended);
      const next = "import os\n1 + os.path.exists('/tmp/kept')";
      expect(await call(next, { restart: true })).toMatchObject(works);
    });

    test("half a message, or a forged end, harms its own call only", async () => {
      await using session = await open();
      const { call } = session;
      const half = await call(`${find}\nos.write(tell, message(b"y", b"x" * 100)[:50])`, {
        timeoutMs: 1000,
      });
      expect(half.end).toBe("timeout execution_timeout null");
      await call("1", { restart: true });
      const early = await call(
        `${find}\nos.write(tell, message(b"x", b"0"))\nimport time\ntime.sleep(0.3)\n1`,
      );
      expect(early.report.lostReason).toBeNull();
      expect(await call("1 + 1", { restart: true })).toMatchObject(works);
    });
  });

  describe("hostile 58: processes that cells leave behind", () => {
    // There, processes are bounded by memory alone.
    const underGvisor = isGvisor ? ["under gVisor"] : [];
    test.each(underGvisor)("a fork bomb %s ends its session, out of memory", async () => {
      await using session = await open();
      const { call, sandbox } = session;
      const bomb =
        "import os\nif os.fork() == 0:\n    while True:\n        try: os.fork()\n        except OSError: pass";
      const ended = await call(bomb, { timeoutMs: 60_000 });
      if (ended.report.lostReason === null)
        await call("import time\ntime.sleep(60)", { timeoutMs: 120_000 });
      expect(sandbox.died.aborted).toBe(true);
      expect(await sandbox.whyDied()).toMatchObject({ outOfMemory: true });
      await expect(call("1")).rejects.toThrow("the supervisor ended");
    });

    test.skipIf(isGvisor)("a fork bomb: a restart ends it", async () => {
      await using session = await open({ pids: 64 });
      const { call } = session;
      const bomb = await call(
        "import os\nif os.fork() == 0:\n    os.setsid()\n    while True:\n        try: os.fork()\n        except OSError: pass",
        { timeoutMs: 5000 },
      );
      expect(bomb.report.lostReason).toBeNull();
      const next = await call("os.fork()", { timeoutMs: 5000 });
      expect(next.report.lostReason).toBeNull();
      const program = { file: "main.sh", compile: [], compileTimeoutMs: 1, run: ["true"] };
      for (let n = 0; n < 10; n++)
        expect((await call("", { program })).report.lostReason).toBeNull();
      const other = await call("1 + 1", { context: "other", contexts: ["other"], timeoutMs: 5000 });
      expect(other.report.lostReason).toBeNull();
      expect(await call("1 + 1", { restart: true })).toMatchObject(works);
      const left =
        "import os\n[n for n in os.listdir('/proc') if n.isdigit() and int(n) not in (1, os.getpid())]";
      expect(await call(left)).toMatchObject({ shown: ["[]"] });
    });

    test.skipIf(isGvisor).each(["default", "other"])(
      "a fork bomb of the context %s, beside another one: a restart ends it, and the other one goes on",
      async (name) => {
        await using session = await open({ pids: 64 });
        const in_ = { context: name, contexts: ["other"] };
        const beside = {
          context: name === "other" ? "default" : "other",
          contexts: ["other"],
          timeoutMs: 5000,
        };
        const { call } = session;
        await call("import os, subprocess\np = subprocess.Popen(['sleep', '600'])\nx = 2", beside);
        await call(
          "import os\nif os.fork() == 0:\n    os.setsid()\n    while True:\n        try: os.fork()\n        except OSError: pass",
          { ...in_, timeoutMs: 5000 },
        );
        expect(await call("1 + 1", { ...in_, restart: true })).toMatchObject(works);
        expect(await call("x", beside)).toMatchObject(works);
        const left =
          "p.poll(), {n for n in os.listdir('/proc') if n.isdigit()} - {'1', str(os.getpid()), str(p.pid)} == {open('/tmp/pid').read()}";
        const own = "import os\n_ = open('/tmp/pid', 'w').write(str(os.getpid()))";
        expect((await call(own, in_)).end).toBe("succeeded - 0");
        expect(await call(left, beside)).toMatchObject({ shown: ["(None, True)"] });
      },
    );

    test.each(["SIGKILL", "SIGSTOP"])("kill -1 with %s without end", async (signal) => {
      await using session = await open();
      const { call } = session;
      await call("open('/output/file', 'w').write('x' * 1_000_000)");
      const killer = await call(
        `import os, signal\nif os.fork() == 0:\n    os.setsid()\n    while True:\n        try: os.kill(-1, signal.${signal})\n        except OSError: pass\nelse:\n    while True: pass`,
        { timeoutMs: 1500 },
      );
      expect(killer.report.lostReason).toBeNull();
      const next = await call("1", { timeoutMs: 1500 });
      expect(next.end).not.toBe("succeeded - 0");
      expect(await call("1 + 1", { restart: true })).toMatchObject(works);
    });

    // gVisor does not count them, and has them in the sandbox's memory.
    test.skipIf(isGvisor)("sockets that a thread makes between two calls", async () => {
      await using session = await open({ loopback: "full" });
      const { call } = session;
      await call(
        `
import socket, threading, time
kept = []
def make():
    time.sleep(0.5)
    while True:
        try: kept.append(socket.socket())
        except OSError: time.sleep(0.01)
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
threading.Thread(target=make).start()`,
        { maxSockets: 100 },
      );
      await expect
        .poll(async () => (await call("len(kept)", { maxSockets: 100 })).end, { interval: 300 })
        .toMatch(/^(failed interpreter_ended null|oom oom 137)$/);
      expect(await call("1 + 1", { restart: true })).toMatchObject(works);
    });
  });

  describe("hostile 63: what no limit of the kernel counts", () => {
    test("locks of files that many calls make, each few", async () => {
      await using session = await open();
      const { call } = session;
      const few = `
import fcntl, struct
files = [*globals().get("files", []), open("/tmp/locked%d" % len(globals().get("files", [])), "w")]
for n in range(1000): fcntl.fcntl(files[-1], fcntl.F_SETLK, struct.pack("hhqqi", fcntl.F_WRLCK, 0, 2 * n, 1, 0))`;
      const ends = [];
      for (let n = 0; n < 40; n++) ends.push((await call(few)).end);
      // gVisor shows none, and has them in the sandbox's memory.
      const isEnded = ends.some((end) => /^oom|interpreter_ended/.test(end));
      expect(isEnded).toBe(!isGvisor);
      expect(await call("1 + 1", { restart: true })).toMatchObject(works);
    });

    test.skipIf(isGvisor)("sockets that a process makes while an interpreter starts", async () => {
      await using session = await open({ loopback: "full" });
      const { call } = session;
      const terms = { maxSockets: 100, timeoutMs: 4000 };
      await call(
        `
import os, resource, signal, socket, time
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
if os.fork() == 0:
    os.setsid()
    while True:
        try: os.kill(os.getpid() + 1, signal.SIGSTOP)
        except OSError: continue
        break
    kept = [socket.socket() for _ in range(500)]
    time.sleep(2)
    open("/tmp/kept", "w").close()`,
        terms,
      );
      await call("1", { ...terms, context: "other", contexts: ["other"] });
      const isKept = await call("import os\nos.path.exists('/tmp/kept')", { restart: true });
      expect(isKept.shown).toEqual(["False"]);
    });
  });

  describe("hostile 59: files that change while they are sent", () => {
    test("threads that shrink, grow, remove and replace them", async () => {
      await using session = await open();
      const { call } = session;
      await call(`
import os, random, threading
names = ["f%d" % n for n in range(8)]
def change(name):
    while True:
        try:
            act = random.randrange(6)
            if act == 0: open(name, "w").write("x" * random.randrange(3_000_000))
            elif act == 1: os.truncate(name, 10)
            elif act == 2: os.truncate(name, 5_000_000)
            elif act == 3: os.unlink(name)
            elif act == 4: os.unlink(name); os.mkfifo(name)
            else: os.unlink(name); os.symlink("/etc/passwd", name)
        except OSError: pass
for name in names: threading.Thread(target=change, args=(name,), daemon=True).start()`);
      for (let n = 0; n < 10; n++) {
        const { report, files } = await call("1", { fetch: ["f0", "f1", "/output/f2"] });
        expect(report.lostReason).toBeNull();
        for (const content of Object.values(files)) expect(content).toMatch(/^[x\0]*$/);
      }
      expect(await call("1 + 1", { restart: true })).toMatchObject({ end: "succeeded - 0" });
    });
  });

  describe("hostile 60: results of calls that break their limits", () => {
    test("items without end, a repr of 100 MiB, and one without end", async () => {
      await using session = await open();
      const { call } = session;
      const many = await call("for n in range(100_000): display(n)\n'last'", { timeoutMs: 60_000 });
      expect([many.shown.length, many.shown[999]]).toEqual([1000, "'last'"]);
      expect(many.report.itemsTruncated).toBe(true);
      const long = await call("class A:\n    def __repr__(self): return 'x' * (100 << 20)\nA()");
      expect(long.shown[0]).toHaveLength(64 * 1024 + 1);
      const endless = await call(
        "class B:\n    def __repr__(self):\n        while True: pass\nB()",
        { timeoutMs: 1000 },
      );
      expect(endless.end).toBe("timeout execution_timeout null");
      expect(await call("1 + 1")).toMatchObject(works);
    });

    test("a thread that displays without end does not keep a call from its end", async () => {
      await using session = await open();
      const { call } = session;
      await call(
        "import threading\ndef flood():\n    while True: display('x' * 10_000)\nthreading.Thread(target=flood, daemon=True).start()",
      );
      expect((await call("1 + 1")).end).toBe("succeeded - 0");
      expect((await call("1 + 1")).report.lostReason).toBeNull();
    });
  });

  test("hostile 61: a session sees nothing of another one of its kind", async () => {
    await using first = await open();
    await using second = await open();
    await first.call(
      "secret = 'a' * 1000\nopen('/tmp/secret', 'w').write(secret)\nopen('/output/s', 'w').write(secret)",
    );
    const seen = await second.call(
      "import os\n'secret' in globals(), os.path.exists('/tmp/secret'), os.listdir('/output'), sorted(n for n in os.listdir('/proc') if n.isdigit()) == sorted(['1', str(os.getpid())])",
    );
    expect(seen.shown).toEqual(["(False, False, [], True)"]);
    const restarted = await second.call(
      "import gc\nany(isinstance(o, str) and o == 'a' * 1000 for o in gc.get_objects())",
      { restart: true },
    );
    expect(restarted.shown).toEqual(["False"]);
  });
});
