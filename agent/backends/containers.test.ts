import { reset } from "@logtape/logtape";
import { describe, expect, test } from "vitest";
import { logLines } from "../../shared/testing/test-file.ts";
import { seccompProfile } from "../sandbox/filter.ts";
import { EngineError, type SandboxRequest, type SandboxSpec } from "../sandbox/sandbox.ts";
import { specWith } from "../testing/engine.ts";
import { job } from "../testing/fake-supervisor.ts";
import { createPoolWorld, idleMs, idOf, never, type PoolWorld, request } from "../testing/fakes.ts";
import { bytecodes } from "./containers.ts";
import { containerProfile } from "./profiles.ts";

/** A pool in which containers wait for the request. */
async function warmed(least: number): Promise<PoolWorld> {
  const world = createPoolWorld(least);
  world.pool.keepReadyFor(request());
  await world.warm(least);
  return world;
}

test("a preload that failed is told to the operator, with its job type", async () => {
  const lines = await logLines("warning");
  await using world = createPoolWorld(0);
  const { start } = world;
  world.start = async (spec, signal) => ({
    ...(await start(spec, signal)),
    preloadErrors: { nunpy: "No module named 'nunpy'" },
  });
  await world.take(request({}, "science"));
  await reset();
  expect(lines.join()).toMatch(/preload of nunpy for science failed: No module named/);
});

test("a container is never given twice, and what is taken is replaced", async () => {
  await using world = createPoolWorld(1);
  const given = new Set<string>();
  for (let n = 0; n < 5; n++) {
    given.add(await world.take());
    await world.refill();
    await world.warm(1);
  }
  expect(given.size).toBe(5);
});

test.each<[string, SandboxRequest]>([
  ["job type", request({}, "science")],
  ["image", request({ image: "sha256:bb" })],
  ["memory", request({ memoryBytes: 2 })],
  ["network", request({ network: "bridge" })],
  ["runtime", request({ runtime: "runsc" })],
  ["environment", request({ env: { A: "1" } })],
  ["preload", request({ preload: ["json"] })],
])("jobs of another %s do not share containers", async (_what, other) => {
  await using world = await warmed(1);
  expect(await world.take(other)).toBe("container-2");
  expect(world.ready()).toBe(1);
});

test("containers that hold a GPU do not wait", async () => {
  await using world = createPoolWorld(1);
  await world.take(request({ gpus: ["0"] }));
  world.pool.keepReadyFor(request());
  await world.refill();
  await world.warm(1);
  expect(world.started.map((s) => s.spec.gpus)).toEqual([["0"], []]);
});

test("a container that died waiting is closed, never given, and replaced", async () => {
  await using world = await warmed(1);
  const [dead] = world.started;
  dead!.died.abort();
  await dead!.sandbox.closed;
  await world.warm(1);
  expect(await world.take()).toBe("container-2");
});

test("size 0 keeps nothing", async () => {
  await using world = createPoolWorld(0);
  await world.take();
  await world.refill();
  expect(world.started).toHaveLength(1);
});

test("tells of each kind what is ready, starting and in use", async () => {
  await using world = await warmed(2);
  const runsc = request({ runtime: "runsc" }, "science");
  const sandbox = await world.pool.acquire(request(), never);
  await world.pool.acquire(runsc, never);
  const backend = "engine";
  expect(world.pool.stats()).toEqual([
    { job_type: "default", runtime: null, backend, ready: 1, starting: 0, in_use: 1 },
    { job_type: "science", runtime: "runsc", backend, ready: 0, starting: 0, in_use: 1 },
  ]);
  await world.pool.giveBack(sandbox);
  expect(world.pool.stats()).toMatchObject([{ in_use: 0 }, { in_use: 1 }]);
});

test("together no more wait than the most; the kinds asked for last come first", async () => {
  await using world = createPoolWorld(2, { most: 3 });
  const kinds = ["a", "b", "c"].map((name) => request({}, name));
  for (const kind of kinds) {
    world.pool.keepReadyFor(kind);
    world.clock.advance(1000);
    while (world.pool.stats().at(-1)?.ready !== 2) await new Promise(setImmediate);
  }
  const ready = world.pool.stats().map(({ job_type, ready }) => [job_type, ready]);
  expect(ready).toEqual([
    ["a", 0],
    ["b", 1],
    ["c", 2],
  ]);
});

test("kinds that nobody asks for any more are let go", async () => {
  await using world = await warmed(1);
  await world.pass(idleMs + 15_000);
  await world.started[0]!.sandbox.closed;
  expect(world.pool.stats()).toEqual([]);
});

test("a container that died between the last look and its use makes way for a fresh one", async () => {
  await using world = await warmed(1);
  const { sandbox } = world.started[0]!;
  sandbox.fail(new EngineError("other", "the container ended before the code began"));
  const lent = await world.pool.acquire(request(), never);
  const report = lent.run(job, { signal: never, spoolDir: "" });
  while (world.started.length < 2) await new Promise(setImmediate);
  const fresh = world.started.at(-1)!;
  fresh.sandbox.finish({ executionMs: 42 });
  expect(await report).toMatchObject({ executionMs: 42 });
  expect(idOf(lent)).toBe("container-2");
  await world.pool.giveBack(lent);
  await Promise.all([sandbox.closed, fresh.sandbox.closed]);
});

test("owns its containers by their labels, until they are removed", async () => {
  await using world = createPoolWorld(1);
  const label = (n: number) => world.started[n]?.spec.labels.leaseId ?? "";
  const sandbox = await world.pool.acquire(request(), never);
  await world.refill();
  await world.warm(1);
  expect([label(0), label(1)].map(world.pool.owns)).toEqual([true, true]);
  expect(label(0)).not.toBe(label(1));
  await world.pool.giveBack(sandbox);
  while (world.pool.owns(label(0))) await new Promise(setImmediate);
  expect(world.pool.owns(label(1))).toBe(true);
});

test("closing removes what waits and what is about to, and what is in use keeps on", async () => {
  const world = await warmed(1);
  const sandbox = await world.pool.acquire(request(), never);
  const hold = Promise.withResolvers<void>();
  const { start } = world;
  world.start = async (spec, signal) => {
    await hold.promise;
    return start(spec, signal);
  };
  await world.refill();
  const closed = world.pool.close();
  hold.resolve();
  await closed;
  await world.started[1]!.sandbox.closed;
  expect(world.pool.stats()).toMatchObject([{ ready: 0, starting: 0, in_use: 1 }]);
  await world.pool.giveBack(sandbox);
  await world.started[0]!.sandbox.closed;
  expect(world.started).toHaveLength(2);
});

const MiB = 1024 * 1024;

describe("every container", () => {
  const profile = containerProfile(specWith());

  test("runs the supervisor as root, whatever the image would run", () => {
    expect(profile).toMatchObject({
      Entrypoint: ["python3"],
      Cmd: ["-I", "-S", "-u", "-c", expect.any(String)],
      User: "0:0",
      Healthcheck: { Test: ["NONE"] },
      HostConfig: { Init: false },
    });
  });

  test("has no rights except to become another user and to signal its processes", () => {
    expect(profile.HostConfig).toMatchObject({
      CapDrop: ["ALL"],
      CapAdd: ["SETUID", "SETGID", "KILL", "SETPCAP"],
      SecurityOpt: ["no-new-privileges", expect.stringMatching(/^seccomp=\{/)],
      ReadonlyRootfs: true,
      IpcMode: "private",
    });
  });

  test("sees nothing of the host", () => {
    expect(profile.HostConfig).not.toHaveProperty("Binds");
    expect(profile.HostConfig).not.toHaveProperty("Mounts");
    expect(profile.HostConfig).not.toHaveProperty("Devices");
    expect(profile.HostConfig).not.toHaveProperty("Privileged");
    expect(profile.Hostname).toBe("sandbox");
  });

  test("is used over its attached stream only, and logs nothing on the host", () => {
    expect(profile).toMatchObject({
      Tty: false,
      OpenStdin: true,
      StdinOnce: true,
      HostConfig: { LogConfig: { Type: "none" } },
    });
  });

  test("is labelled, so that it can be reaped", () => {
    expect(profile.Labels).toEqual({
      "io.airlock.agent": "agent-1",
      "io.airlock.owner": "tests",
      "io.airlock.lease": "",
    });
  });
});

test("a container that is made for a lease has the lease's label", () => {
  const labels = { agentId: "a", agentName: "n", leaseId: "lease-1" };
  expect(containerProfile(specWith({ labels })).Labels["io.airlock.lease"]).toBe("lease-1");
});

test("without a network the engine sets up no network sandbox", () => {
  expect(containerProfile(specWith({ network: "none" }))).toMatchObject({
    NetworkDisabled: true,
    HostConfig: { NetworkMode: "none" },
  });
  expect(containerProfile(specWith({ network: "bridge" }))).toMatchObject({
    NetworkDisabled: false,
    HostConfig: { NetworkMode: "bridge" },
  });
});

test("memory includes swap", () => {
  const { HostConfig } = containerProfile(specWith({ memoryBytes: 512 * MiB }));
  expect(HostConfig).toMatchObject({ Memory: 512 * MiB, MemorySwap: 512 * MiB });
});

test("under gVisor the memory of its own kernel is added", () => {
  const { Memory, MemorySwap, ShmSize } = containerProfile(
    specWith({ memoryBytes: 64 * MiB, runtime: "runsc" }),
  ).HostConfig;
  expect({ Memory, MemorySwap }).toEqual({ Memory: 96 * MiB, MemorySwap: 96 * MiB });
  expect(ShmSize).toBe(containerProfile(specWith({ memoryBytes: 64 * MiB })).HostConfig.ShmSize);
});

test.each([
  [32, 8],
  [64, 36],
  [512, 448],
  [8192, 7168],
])("of %i MiB at most %i go to files in memory", (memory, files) => {
  const { ShmSize, Tmpfs } = containerProfile(specWith({ memoryBytes: memory * MiB })).HostConfig;
  const sizes = [Tmpfs["/output"], Tmpfs["/tmp"]].map((options) =>
    Number(/size=([0-9]+)$/.exec(options)?.[1]),
  );
  const total = sizes.reduce((sum, size) => sum + size, ShmSize);
  expect(total / MiB).toBeCloseTo(files, 3);
});

test("folders in memory allow neither set-uid files nor devices, and read-only ones no programs", () => {
  const { Tmpfs } = containerProfile(specWith()).HostConfig;
  for (const options of Object.values(Tmpfs)) expect(options).toMatch(/nosuid,nodev/);
  expect(Tmpfs["/code"]).toContain("noexec");
  expect(Tmpfs["/input"]).toContain("noexec");
});

test("/packages exists if jobs may bring packages; root writes it, all may run from it", () => {
  const mounts = (packages: SandboxSpec["packages"]): Record<string, string> =>
    containerProfile(specWith({ packages, memoryBytes: 400 * MiB })).HostConfig.Tmpfs;
  expect(mounts("none")).not.toHaveProperty("/packages");
  expect(mounts("memory")["/packages"]).toBe(`rw,nosuid,nodev,exec,mode=755,size=${300 * MiB}`);
});

test("packages on disk are in a volume of the container, and their files may be larger than its memory", () => {
  const { Mounts, Tmpfs, Ulimits } = containerProfile(specWith({ packages: "disk" })).HostConfig;
  expect(Mounts).toEqual([
    { Type: "volume", Target: "/packages", VolumeOptions: { NoCopy: true } },
  ]);
  expect(Tmpfs).not.toHaveProperty("/packages");
  expect(Ulimits.map(({ Name }) => Name)).not.toContain("fsize");
});

test("CPUs may be fractions; libraries start one thread for each", () => {
  const profile = containerProfile(specWith({ cpus: 1.5 }));
  expect(profile.HostConfig.NanoCpus).toBe(1_500_000_000);
  expect(profile.Env).toContain("OMP_NUM_THREADS=2");
  expect(profile.Env).toContain("PYTHON_CPU_COUNT=2");
});

test("the job type's environment takes precedence", () => {
  const env = { OMP_NUM_THREADS: "7", MODE: "a=b" };
  const profile = containerProfile(specWith({ env }));
  expect(profile.Env).toContain("OMP_NUM_THREADS=7");
  expect(profile.Env).toContain("MODE=a=b");
  expect(profile.Env).not.toContain("OMP_NUM_THREADS=1");
});

test("processes are limited by the cgroup, under gVisor by an rlimit", () => {
  const limit = { Name: "nproc", Soft: 64, Hard: 64 };
  const runc = containerProfile(specWith({ pids: 64 })).HostConfig;
  expect(runc).toMatchObject({ PidsLimit: 64 });
  expect(runc.Ulimits).not.toContainEqual(limit);
  const gvisor = containerProfile(specWith({ pids: 64, runtime: "runsc" })).HostConfig;
  expect(gvisor).not.toHaveProperty("PidsLimit");
  expect(gvisor.Ulimits).toContainEqual(limit);
  expect(gvisor).toMatchObject({ Runtime: "runsc" });
});

test("system calls are filtered by the pinned profile, unless the filter is turned off", () => {
  const pinned = `seccomp=${JSON.stringify(seccompProfile())}`;
  const off = "seccomp=unconfined";
  expect(containerProfile(specWith()).HostConfig.SecurityOpt).toContain(pinned);
  expect(containerProfile(specWith({ seccomp: false })).HostConfig.SecurityOpt).toContain(off);
});

test("GPUs are given only if requested", () => {
  expect(containerProfile(specWith()).HostConfig).not.toHaveProperty("DeviceRequests");
  const { HostConfig, Env } = containerProfile(specWith({ gpus: ["1", "GPU-ab"] }));
  expect(HostConfig).toMatchObject({
    DeviceRequests: [{ Driver: "nvidia", DeviceIDs: ["1", "GPU-ab"], Capabilities: [["gpu"]] }],
  });
  expect(Env).toContain("NVIDIA_VISIBLE_DEVICES=1,GPU-ab");
});

test("an image or a job type that requests all GPUs in its environment gets none", () => {
  const { Env } = containerProfile(specWith({ env: { NVIDIA_VISIBLE_DEVICES: "all" } }));
  expect(Env.filter((entry) => entry.startsWith("NVIDIA"))).toEqual([
    "NVIDIA_VISIBLE_DEVICES=void",
  ]);
});

describe("stored bytecode", () => {
  const code = { program: Buffer.from("code"), later: Buffer.from("more") };

  test("belongs to one image, until it is dropped", () => {
    const kept = bytecodes();
    expect(kept.of("a")).toBeNull();
    kept.keep("a", code);
    expect(kept.of("a")).toEqual({
      program: Uint8Array.from(code.program),
      later: Uint8Array.from(code.later),
    });
    expect(kept.of("b")).toBeNull();
    kept.keep("a", null);
    expect(kept.of("a")).toBeNull();
  });

  test("is the newest, up to a limit", () => {
    const kept = bytecodes(2);
    for (const image of ["a", "b", "a", "c"]) kept.keep(image, code);
    expect(["a", "b", "c"].filter((image) => kept.of(image) !== null)).toEqual(["a", "c"]);
  });
});
