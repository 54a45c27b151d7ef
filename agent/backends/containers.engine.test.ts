import { once } from "node:events";
import { beforeEach, describe, expect, it, test } from "vitest";
import type { AgentStatus } from "../../shared/wire/leases.ts";
import type { Engine } from "../engine/engine.ts";
import type { AgentProcess } from "../testing/agent-process.ts";
import { api, name, nextResult, start as startAgent, useWorld } from "../testing/agent-world.ts";
import { specWith, testEngine } from "../testing/engine.ts";
import { containersOf, rawEngine } from "../testing/raw-engine.ts";
import { type Run, runCode, type Settings } from "../testing/run-code.ts";
import { testJob } from "../testing/test-agent.ts";
import { openSandbox } from "./containers.ts";

const place = await testEngine();

describe.each(["runc", "runsc"])("under %s", (runtime) => {
  const isGvisor = runtime === "runsc";

  /** Runs code in a container, which must be gone afterwards. */
  async function run(code: string, settings?: Settings): Promise<Run> {
    const spec = { runtime, ...settings?.spec };
    const result = await runCode(place, code, { ...settings, spec });
    expect(result.left).toBe(0);
    return result;
  }

  test("code that reads its input, prints, returns a result and leaves a file", async () => {
    const { end, out, err, files, report } = await run(
      `
import json, sys
data = json.load(open("/input/data.json"))
print("hello", data["name"]); print("careful", file=sys.stderr)
json.dump({"length": len(data["name"])}, open("/output/result.json", "w"))
open("note.txt", "w").write("kept")`,
      { job: { inputJson: '{"name": "Ada"}' } },
    );
    expect({ end, out, err, files }).toEqual({
      end: "succeeded - 0",
      out: "hello Ada\n",
      err: "careful\n",
      files: { "note.txt": "kept" },
    });
    expect(report.result).toEqual({ kind: "object", text: '{"length": 3}' });
    expect(report.lostReason).toBeNull();
  });

  test.each([
    ["file_not_found", "open('/nowhere')"],
    ["file_error", "open('/tmp')"],
    ["file_error", "open('/code/main.py/x')"],
    // gVisor looks at permissions before it looks at the mount.
    [isGvisor ? "permission" : "os_error", "open('/usr/x', 'w')"],
    ["permission", "open('/code/main.py', 'w')"],
    ["network_error", "import socket; socket.create_connection(('127.0.0.1', 9))"],
    [
      "network_error",
      "import urllib.request as r\nr.urlopen('http://example.com') # no network, no names",
    ],
    ["recursion_error", "def f(): f()\nf()"],
    ["runtime_error", "x = bytearray(10**15)"],
  ])("%s: %s", async (type, code) => {
    expect((await run(code)).end).toBe(`failed ${type} 1`);
  });

  test.each([
    ["segfault 139", "import ctypes; ctypes.string_at(0)"],
    ["abort 134", "import os; os.abort()"],
    ["killed 143", "import os; os.kill(os.getpid(), 15)"],
    ["killed 130", "raise KeyboardInterrupt"],
    ["runtime_error 3", "import sys; sys.exit(3)"],
    ["runtime_error 1", "import sys; sys.exit('bye')"],
  ])("%s: %s", async (end, code) => {
    expect((await run(code)).end).toBe(`failed ${end}`);
  });

  describe("an end from outside", () => {
    const code = `import os\nopen("a", "w").write("kept"); os.write(1, b"partial\\n")\nwhile True: pass`;

    test("timeout", async () => {
      const { end, out, files, report } = await run(code, { job: { timeoutMs: 2000 } });
      expect({ end, out, files }).toEqual({
        end: "timeout execution_timeout null",
        out: "partial\n",
        files: { a: "kept" },
      });
      expect(report.executionMs).toBeGreaterThanOrEqual(2000);
    });

    test("cancel", async () => {
      const cancel = new AbortController();
      const options = { signal: cancel.signal, onOutput: () => cancel.abort() };
      const { end, out, files } = await run(code, { options });
      expect({ end, out, files }).toEqual({
        end: "cancelled cancelled 143",
        out: "partial\n",
        files: { a: "kept" },
      });
    });
  });

  test("the code can write where it may, and nowhere else", async () => {
    const { out } = await run(`
import os
for folder in ("/", "/code", "/input", "/etc", "/usr", "/var/tmp", "/dev", "/dev/mqueue", "/proc/sys/kernel", "/sys", "/run", "/root", "/home", "/output", "/tmp", "/dev/shm"):
    try: open(folder + "/x", "w").close(); print(folder)
    except OSError: pass
for file in ("/code/main.py", "/input/data.json", "/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern", "/proc/self/oom_score_adj"):
    try: open(file, "r+").close(); print(file)
    except OSError: pass`);
    expect(out).toBe("/output\n/tmp\n/dev/shm\n/proc/self/oom_score_adj\n");
  });

  test("the code and the programs it starts can open their streams by name", async () => {
    const { end, out, err } = await run(`
import subprocess
open("/dev/stdout", "w").write("code\\n"); open("/dev/stderr", "w").write("code\\n")
subprocess.run("echo child > /dev/stdout; echo child > /dev/stderr", shell=True, check=True)`);
    const both = "code\nchild\n";
    expect({ end, out, err }).toEqual({ end: "succeeded - 0", out: both, err: both });
  });

  test("the code sees no network but its own loopback", async () => {
    const { out } = await run(`
import os, socket
print(os.listdir("/sys/class/net"))
for address in ("169.254.169.254", "172.17.0.1", "10.0.0.1", "1.1.1.1"):
    try: socket.create_connection((address, 80), 2)
    except OSError as e: print(e.strerror in ("Network is unreachable", "No route to host"))
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
server.accept()[0].send(b"loopback")
print(client.recv(10))`);
    expect(out).toBe(`['lo']\n${"True\n".repeat(4)}b'loopback'\n`);
  });

  test("code and input of many megabytes arrive", async () => {
    const job = {
      code: `x = "${"y".repeat(20_000_000)}"\nprint(len(x))`,
      inputJson: `"${"z".repeat(20_000_000)}"`,
    };
    expect(await run(job.code, { job })).toMatchObject({ end: "succeeded - 0", out: "20000000\n" });
  });

  test("nothing of the host is in the environment, and nothing secret in the supervisor", async () => {
    const { out } = await run(
      `
import os
print(sorted(os.environ))
print(os.uname().nodename)
try: secrets = open("/proc/1/environ").read().split("\\0")
except PermissionError: secrets = []
print([s for s in secrets if s and s.split("=")[0] not in os.environ])
try: open("/proc/1/mem", "rb").read(1); print("read")
except OSError as e: print(type(e).__name__)`,
      { spec: { env: { MODE: "x" } } },
    );
    const known =
      "HOME HOSTNAME LANG LOGNAME MKL_NUM_THREADS MODE NUMEXPR_NUM_THREADS NVIDIA_VISIBLE_DEVICES OMP_NUM_THREADS";
    const names = `${known} OPENBLAS_NUM_THREADS PATH PYTHONUNBUFFERED PYTHON_CPU_COUNT USER`.split(
      " ",
    );
    expect(out).toBe(`${JSON.stringify(names).replaceAll('"', "'").replaceAll(",", ", ")}
sandbox
[]
PermissionError
`);
  });
});

test("where the supervisor may send no signals, a timeout still keeps output and files", async () => {
  const { engine, image } = place;
  const unable: Engine = {
    ...engine,
    create: (profile, signal) => {
      const SecurityOpt = profile.HostConfig.SecurityOpt.map((each) => each.replace('"kill",', ""));
      return engine.create(
        { ...profile, HostConfig: { ...profile.HostConfig, SecurityOpt } },
        signal,
      );
    },
  };
  const code = `open("a", "w").write("kept"); print("partial", flush=True)\nwhile True: pass`;
  const job = { timeoutMs: 1000 };
  const { end, out, files, left } = await runCode({ engine: unable, image }, code, { job });
  expect({ end, out, files, left }).toEqual({
    end: "timeout execution_timeout null",
    out: "partial\n",
    files: { a: "kept" },
    left: 0,
  });
});

test("an interpreter that dies before its job comes ends its container, which is removed once", async () => {
  const { engine, image } = place;
  let removals = 0;
  const counting: Engine = {
    ...engine,
    remove: (id, signal) => {
      removals += 1;
      return engine.remove(id, signal);
    },
  };
  const sandbox = await openSandbox(counting, specWith({ image }), AbortSignal.timeout(60_000));
  try {
    expect(sandbox.died.aborted).toBe(false);
    const died = once(sandbox.died, "abort", { signal: AbortSignal.timeout(60_000) });
    await killAllButFirst(sandbox.containerId);
    await died;
  } finally {
    await Promise.all([sandbox.close(), sandbox.close()]);
    await sandbox.close();
  }
  expect(removals).toBe(1);
});

/** Kills every process of a container but its PID 1, as the user of the code. */
async function killAllButFirst(id: string): Promise<void> {
  const Cmd = ["python3", "-c", "import os\nos.kill(-1, 9)"];
  const killing = await rawEngine.getContainer(id).exec({ Cmd, User: "1000:1000" });
  await killing.start({ Detach: true });
}

describe("container source", () => {
  useWorld();
  beforeEach(() => {
    const { job_type, image } = testJob();
    api.keepReady = [{ job_type, image }];
    api.imagesWanted = [image];
  });

  const start = (): Promise<AgentProcess> =>
    startAgent({ AIRLOCK_CONTAINER_BACKEND: "engine", AIRLOCK_WARM_POOL_SIZE: "2" });
  const removeAll = (ids: string[]) =>
    Promise.all(ids.map((id) => rawEngine.getContainer(id).remove({ force: true, v: true })));

  /** What the agent tells of its pool now. */
  async function pool() {
    const polls = api.count("/poll");
    api.wake();
    const status = (await api.request("/poll", polls + 1)).json as AgentStatus;
    return status.pool;
  }

  async function warm(): Promise<string[]> {
    await expect.poll(pool, { timeout: 60_000 }).toMatchObject([{ ready: 2, starting: 0 }]);
    return containersOf(name);
  }

  it("has containers ready before its first job, which gets one of them", async () => {
    await start();
    const ready = await warm();
    expect(ready).toHaveLength(2);
    api.offer(testJob({ code: "import time\nprint('on', flush=True)\ntime.sleep(600)" }));
    await api.request("/logs");
    await expect
      .poll(pool, { timeout: 60_000 })
      .toMatchObject([{ job_type: "default", runtime: null, ready: 2, in_use: 1 }]);
    // Without those it goes on only where it has started one of its own.
    await removeAll(ready);
    expect(await nextResult()).toMatchObject({ error: { type: "internal_error" } });
  });

  it("replaces a container that dies while it waits; the next job does not notice", async () => {
    await start();
    const ready = await warm();
    await removeAll(ready);
    api.offer(testJob());
    const report = await nextResult();
    expect(report.status).toBe("succeeded");
    expect(api.count("/release")).toBe(0);
    const fresh = await warm();
    expect(fresh.filter((id) => ready.includes(id))).toEqual([]);
  });

  it("leaves none of them when it stops", async () => {
    const agent = await start();
    await warm();
    agent.process.kill("SIGTERM");
    expect(await agent.exit).toBe(0);
    expect(await containersOf(name)).toEqual([]);
  });
});
