import { describe, expect, test } from "vitest";
import { containerProfile } from "./container-profile.ts";
import { seccompProfile } from "../sandbox/filter/profiles.ts";
import { specWith } from "../sandbox/testing/report.ts";
import type { SandboxSpec } from "../sandbox/spec.ts";

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
