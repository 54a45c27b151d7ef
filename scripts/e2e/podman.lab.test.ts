import { existsSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { startAgent } from "../../agent/testing/agent-process.ts";
import { connectEngine } from "../../agent/container/engine.ts";
import { testEngine } from "../../agent/sandbox/testing/engine.ts";
import { runCode } from "../../agent/sandbox/testing/run-code.ts";
import { connect } from "../setup/connect.ts";
import { type HostileWorld, hostileWorld, type Json } from "../testing/hostile-world.ts";
import { type Podman, startPodman } from "../testing/podman.ts";
import { needs } from "../testing/needs.ts";
import { waitUntil } from "../../shared/testing/wait-until.ts";

const dockerHost = process.env["AIRLOCK_DOCKER_HOST"] ?? "unix:///var/run/docker.sock";

async function podmanWithImage(as: "root" | "user"): Promise<{ podman: Podman; image: string }> {
  const { image } = await testEngine();
  const podman = await startPodman(as);
  await podman.load(dockerHost, image);
  return { podman, image };
}

const whole = `
import json, sys
name = json.load(open("/input/data.json"))["name"]
print("hello", name)
print("warned", file=sys.stderr)
json.dump({"length": len(name)}, open("/output/result.json", "w"))
open("note.txt", "w").write("kept")
`;

const look = `
import ctypes, errno, json, os
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *rest):
    return errno.errorcode.get(ctypes.get_errno()) if libc.syscall(number, *rest) == -1 else "done"
def limit(*paths):
    found = [path for path in paths if os.path.exists("/sys/fs/cgroup/" + path)]
    return int(open("/sys/fs/cgroup/" + found[0]).read().split()[0])
writable = [top for top, _, _ in os.walk("/") if os.access(top, os.W_OK) and not top.startswith("/proc/")]
json.dump({
    "uid": os.getuid(),
    "rights": [status[name].strip() for name in ["CapPrm", "CapEff", "CapBnd", "NoNewPrivs", "Seccomp"]],
    "calls": {"unshare": call(272, 0x10000000), "keyctl": call(250, 0, -3, 0), "ptrace": call(101, 0)},
    "writable": sorted(writable),
    "networks": os.listdir("/sys/class/net"),
    "hosts": open("/etc/hosts").read(),
    "limits": [
        limit("memory.max", "memory/memory.limit_in_bytes"),
        limit("pids.max", "pids/pids.max"),
        limit("cpu.max", "cpu/cpu.cfs_quota_us"),
    ],
}, open("/output/result.json", "w"))
`;

describe("Podman as root", needs("root", "podman"), () => {
  let podman: Podman;
  let world: HostileWorld;

  beforeAll(async () => {
    ({ podman } = await podmanWithImage("root"));
    world = await hostileWorld({ AIRLOCK_DOCKER_HOST: podman.host });
  });
  afterAll(async () => {
    await world?.close();
    await podman?.[Symbol.asyncDispose]();
  });

  const submit = async (code: string, more: Json = {}) =>
    String((await world.post("/execute/async", { code, ...more })).json["job_id"]);
  const result = async (id: string) =>
    (await world.get(`/jobs/${id}/result?wait=true&timeout=240&view=full`)).json;
  const containers = () => connect(podman.host).listContainers({ all: true });

  test("the engine is known by its version", async () => {
    const { json } = await world.get("/pool/stats");
    const { Version } = await connect(podman.host).version();
    expect(json).toMatchObject({ agents: [{ engine: { available: true, version: Version } }] });
  });

  test("a job runs to its end: input, streams, output, an artifact", async () => {
    const done = await world.execute(whole, { input_data: { name: "Ada" } });
    expect(done).toMatchObject({
      success: true,
      stdout: "hello Ada\n",
      stderr: "warned\n",
      output: { length: 3 },
    });
    const { text } = await world.get(`/jobs/${String(done["job_id"])}/artifacts/note.txt`);
    expect(text).toBe("kept");
  });

  test("timeout, lack of memory and cancellation are told apart, and keep what was printed", async () => {
    const [late, large, cancelled] = await Promise.all([
      submit("print('late', flush=True)\nwhile True: pass", { timeout: 3 }),
      submit("print('large', flush=True)\nx = bytearray(1 << 30)"),
      submit("import time\nprint('begun', flush=True)\ntime.sleep(600)"),
    ]);
    const status = async () => (await world.get(`/jobs/${cancelled}`)).json["status"];
    await waitUntil("the job runs", async () => (await status()) === "running");
    expect((await world.post(`/jobs/${cancelled}/cancel`, {})).status).toBe(200);
    const ends = await Promise.all([late, large, cancelled].map(result));
    expect(ends).toMatchObject([
      { status: "timeout", stdout: "late\n", error: { type: "execution_timeout" } },
      { status: "oom", stdout: "large\n", error: { type: "oom" } },
      { status: "cancelled" },
    ]);
  });

  test("the code has its limits and Airlock's filter", async () => {
    const done = await world.execute(look);
    expect(done["stderr"]).toBe("");
    const none = "0000000000000000";
    expect(done["output"]).toEqual({
      uid: 1000,
      rights: [none, none, none, "1", "2"],
      calls: { unshare: "EPERM", keyctl: "EPERM", ptrace: "EPERM" },
      writable: ["/dev/shm", "/output", "/tmp"],
      networks: ["lo"],
      hosts: expect.not.stringContaining("runsc") as string,
      limits: [512 * 1024 * 1024, 128, 100_000],
    });
  });

  test("what a killed agent left is removed by the next one of its name", async () => {
    const code = "import time\nprint('begun', flush=True)\ntime.sleep(600)";
    const id = await submit(code);
    const status = async () => (await world.get(`/jobs/${id}`)).json["status"];
    await waitUntil("the job runs", async () => (await status()) === "running");
    await waitUntil("its container is there", async () => (await containers()).length > 0);
    const left = new Set((await containers()).map(({ Id }) => Id));
    world.agent.process.kill("SIGKILL");
    await world.agent.exit;
    const next = startAgent({
      AIRLOCK_API_URL: world.url,
      AIRLOCK_AGENT_TOKEN: world.secrets.token,
      AIRLOCK_AGENT_NAME: world.agentName,
      AIRLOCK_DOCKER_HOST: podman.host,
      AIRLOCK_WARM_POOL_SIZE: "0",
    });
    try {
      await next.ready;
      await waitUntil(
        "what was left is removed",
        async () => !(await containers()).some(({ Id }) => left.has(Id)),
      );
    } finally {
      next.process.kill("SIGTERM");
      await next.exit;
    }
    expect(await containers()).toEqual([]);
  });
});

const unbounded = `
import os, time
x = bytearray(300 << 20)
n = 0
while n < 200:
    if os.fork() == 0:
        time.sleep(60)
    n += 1
print("no limit of memory or processes")
os.kill(-1, 9)
`;

const cgroupVersion = existsSync("/sys/fs/cgroup/cgroup.controllers") ? "2" : "1";
const refusal = {
  "1": /rootless on cgroup v1, where it holds none of a job's limits: .*cgroup v2.*run the engine as root/,
  "2": /the engine cannot limit a job's memory, CPU, processes: .*let the engine's user have its controllers/,
}[cgroupVersion];

describe("Podman of an ordinary user without cgroup controllers", needs("root", "podman"), () => {
  let podman: Podman;
  let image: string;

  beforeAll(async () => {
    ({ podman, image } = await podmanWithImage("user"));
  });
  afterAll(() => podman?.[Symbol.asyncDispose]());

  test("accepts limits and enforces none, although it says that it does", async () => {
    const info = (await connect(podman.host).info()) as Json;
    expect(info).toMatchObject({ Rootless: true, CgroupVersion: cgroupVersion, MemoryLimit: true });
    const { out } = await runCode({ engine: connectEngine(podman.host), image }, unbounded);
    expect(out).toBe("no limit of memory or processes\n");
  });

  test("is refused with a message that says what to do", async () => {
    const world = await hostileWorld({ AIRLOCK_DOCKER_HOST: podman.host });
    try {
      expect((await world.get("/health")).json).toMatchObject({ docker_available: false });
      expect((await world.post("/execute", { code: "print(1)" })).status).toBe(503);
    } finally {
      await world.close();
    }
    const said = await world.agent.stderr;
    expect(said).toMatch(/no jobs can run: /);
    expect(said).toMatch(refusal);
  });
});
