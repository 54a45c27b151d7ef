import { randomUUID } from "node:crypto";
import { readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { afterAll, afterEach, beforeAll, describe, expect, vi } from "vitest";
import { residentBytes } from "../../shared/testing/memory.ts";
import { countDescriptors, namesIn, textIn } from "../../shared/testing/files.ts";
import { labels } from "../sandbox/sandbox.ts";
import { backend, sandboxRuntime } from "./backend.ts";
import { testEngine } from "./engine.ts";
import { rawEngine } from "./raw-engine.ts";
import { type Run, runCode, type Settings } from "./run-code.ts";

/** Where hostile code runs. */
interface Scene {
  readonly runtime: string;
  readonly isGvisor: boolean;
  /** Label of all containers that the invariant checks. */
  readonly agentName: string;
  /** Path of a host file that no job may read or change; set while a test runs. */
  readonly canaryPath: () => string;
  readonly place: () => Awaited<ReturnType<typeof testEngine>>;
  /** Runs code in its own container. */
  readonly run: (code: string, settings?: Settings) => Promise<Run>;
}

const look = `
import glob, os
print("next", glob.glob("/tmp/*") + glob.glob("/dev/shm/*") + glob.glob("/output/*") + glob.glob("/dev/mqueue/*"))`;

/**
 * Cases of hostile code, under runc in the engine tier and under gVisor in the lab. Each test ends with the invariant:
 * host and agent are as before. After each fork and after the last container, a harmless job runs well and finds
 * nothing. After any other container, the next case does the same.
 */
export function hostileCases(cases: (scene: Scene) => void): void {
  const runtime = sandboxRuntime;
  describe(`under ${runtime}`, () => {
    const agentName = `hostile-${randomUUID()}`;
    let place: Awaited<ReturnType<typeof testEngine>>;
    let watch: HostWatch;

    async function run(code: string, settings: Settings = {}): Promise<Run> {
      const spec = { runtime, ...settings.spec };
      const result = await runCode(place, code, { agentName, ...settings, spec });
      const { out, err, files, report } = result;
      const told = JSON.stringify([out, err, files, report.result]);
      expect(told).not.toContain(watch.canary.secret);
      return result;
    }

    async function runNext(): Promise<void> {
      const { end, out, err } = await run(look);
      expect({ end, out, err }).toEqual({ end: "succeeded - 0", out: "next []\n", err: "" });
    }

    beforeAll(async () => {
      place = await testEngine();
      await runCode(place, look, { agentName, spec: { runtime } });
      watch = await watchHost(agentName);
    });
    afterEach(async () => {
      if (backend === "zygote") await runNext();
      await watch.holds();
    });
    afterAll(async () => {
      try {
        if (backend !== "zygote") await runNext();
        await watch.holds();
      } finally {
        watch?.close();
      }
    });

    const isGvisor = runtime === "runsc";
    cases({
      runtime,
      isGvisor,
      agentName,
      canaryPath: () => watch.canary.path,
      place: () => place,
      run,
    });
  });
}

export type HostWatch = Awaited<ReturnType<typeof watchHost>>;

/** Milliseconds within which everything that is being removed must be gone. */
const patienceMs = 60_000;
/** Connections that clients keep for their next requests; there are more after many at once. */
const idleConnections = 16;
/** V8 collects buffers after every 64 MiB of new ones. */
const roomBytes = 160 * 1024 * 1024;

/**
 * Watches what hostile jobs must leave as it was: the containers of one agent, the canary, and the agent's process (by default this one).
 * Checks processes and mounts if the engine is on this machine.
 */
export async function watchHost(agentName: string, pid = process.pid) {
  /** A host file that only its owner can read; `secret` is its content. */
  const canary = {
    path: join(homedir(), `.airlock-canary-${randomUUID()}`),
    secret: `canary-${randomUUID()}`,
  };
  writeFileSync(canary.path, canary.secret, { mode: 0o600 });
  const planted = stateOf(canary.path);
  const containers = await followContainers(agentName);
  const before = { descriptors: countDescriptors(pid), memory: memoryOf(pid) };

  async function leftovers(): Promise<string[]> {
    const filters = { label: [`${labels.agentName}=${agentName}`] };
    const found = await rawEngine.listContainers({ all: true, filters });
    return [...found.map(({ Id }) => `container ${Id}`), ...tracesOf(containers.marks)];
  }

  const soon = { timeout: patienceMs, interval: 50 };

  /** Fails if the canary has changed, or if a container, mount, process or control group is left. */
  async function isClean(): Promise<void> {
    expect(stateOf(canary.path)).toEqual(planted);
    await vi.waitFor(async () => expect(await leftovers()).toEqual([]), soon);
  }

  /** Fails if the agent's process has more descriptors or memory than before. */
  async function isFlat(): Promise<void> {
    const most = before.descriptors + idleConnections;
    await vi.waitFor(() => expect(countDescriptors(pid)).toBeLessThanOrEqual(most), soon);
    const room = before.memory + roomBytes;
    await vi.waitFor(() => expect(memoryOf(pid, room)).toBeLessThan(room), soon);
  }

  return {
    canary,
    isClean,
    isFlat,
    /** The invariant: both hold. */
    async holds(): Promise<void> {
      await isClean();
      await isFlat();
    },
    close(): void {
      containers.stop();
      rmSync(canary.path);
    },
  };
}

/** Collects the marks of every container of an agent in the host's lists: its id, its mounts. */
async function followContainers(agentName: string) {
  const marks = new Set<string>();
  const filters = { label: [`${labels.agentName}=${agentName}`], event: ["create", "start"] };
  const events = (await rawEngine.getEvents({ filters })) as NodeJS.ReadableStream & {
    destroy(): void;
  };
  events.on("error", () => {});
  createInterface({ input: events }).on("line", (line) => {
    const { id } = JSON.parse(line) as { id: string };
    marks.add(id);
    rawEngine
      .getContainer(id)
      .inspect()
      .then(({ GraphDriver, NetworkSettings }) => {
        const { MergedDir } = (GraphDriver?.Data ?? {}) as { MergedDir?: string };
        const { SandboxKey } = NetworkSettings as { SandboxKey?: string };
        for (const path of [MergedDir, SandboxKey]) if (path) marks.add(path);
      })
      .catch(() => {});
  });
  return { marks, stop: () => events.destroy() };
}

/** Mounts, control groups, and processes (the container's own, its shim, gVisor's) that carry a mark. */
function tracesOf(marks: ReadonlySet<string>): string[] {
  const traces: string[] = [];
  function note(what: string, text: string): void {
    for (const mark of marks) if (text.includes(mark)) traces.push(`${what}: ${text}`);
  }
  for (const mount of textIn("/proc/mounts").split("\n")) note("mount", mount);
  for (const pid of readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
    const text = textIn(`/proc/${pid}/cmdline`) + textIn(`/proc/${pid}/cgroup`);
    note("process", text.replaceAll("\0", " "));
  }
  for (const path of controlGroupsOf(marks)) traces.push(`control group: ${path}`);
  return traces;
}

function stateOf(path: string) {
  const { mtimeNs, ctimeNs, mode, size, ino, nlink } = statSync(path, { bigint: true });
  return { content: readFileSync(path, "utf8"), mtimeNs, ctimeNs, mode, size, ino, nlink };
}

/**
 * Memory in bytes: of another process what is resident, of this one what is reachable. Garbage is collected, which
 * is slow, only if there are more than `tooMuch` bytes with it.
 */
function memoryOf(pid: number, tooMuch = 0): number {
  if (pid !== process.pid) return residentBytes(pid);
  if (usedBytes() >= tooMuch) collectGarbage();
  return usedBytes();
}

function usedBytes(): number {
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}

/** What the kernel uses on this host for itself, in MiB. */
interface KernelUse {
  /** Neither processes' nor files': buffers of sockets, compiled filters, objects that no control group is charged for. */
  readonly memory: number;
  /** Buffers of sockets of TCP and UDP. */
  readonly sockets: number;
  /** Compiled filters of all processes, which net.core.bpf_jit_limit bounds together. */
  readonly filters: number;
}

const pageMiB = 4096 / 1024 ** 2;
const sampleMs = 20;

/** Follows what the kernel of this host uses. `most` is the largest growth of each since then. */
export function watchKernel(): { most: () => KernelUse; now: () => KernelUse; stop: () => void } {
  const before = kernelUse();
  let most: KernelUse = { memory: 0, sockets: 0, filters: 0 };
  const now = (): KernelUse => combine(kernelUse(), before, (a, b) => a - b);
  const timer = setInterval(() => (most = combine(now(), most, Math.max)), sampleMs);
  return { most: () => most, now, stop: () => clearInterval(timer) };
}

function combine(a: KernelUse, b: KernelUse, of: (a: number, b: number) => number): KernelUse {
  const { memory, sockets, filters } = a;
  return {
    memory: Math.round(of(memory, b.memory)),
    sockets: Math.round(of(sockets, b.sockets)),
    filters: Math.round(of(filters, b.filters)),
  };
}

/** Source: proc_meminfo(5), the kernel's documentation of sockstat and vmallocinfo in proc(5). */
function kernelUse(): KernelUse {
  const kiB = new Map(
    readFileSync("/proc/meminfo", "utf8")
      .split("\n")
      .map((line): [string, number] => [line.split(":")[0]!, Number(/\d+/.exec(line)?.[0])]),
  );
  const of = (...names: string[]): number => names.reduce((sum, name) => sum + kiB.get(name)!, 0);
  const others = of("MemFree", "Buffers", "Cached", "SwapCached", "AnonPages", "SReclaimable");
  const pages = readFileSync("/proc/net/sockstat", "utf8").matchAll(/^(?:TCP|UDP):.* mem (\d+)/gm);
  const filters = readFileSync("/proc/vmallocinfo", "utf8").matchAll(/ (\d+) bpf_/g);
  return {
    memory: (of("MemTotal") - others) / 1024,
    sockets: [...pages].reduce((sum, [, count]) => sum + Number(count) * pageMiB, 0),
    filters: [...filters].reduce((sum, [, bytes]) => sum + Number(bytes) / 1024 ** 2, 0),
  };
}

/** Where engines create control groups: on cgroup v2, and under the memory controller of v1. */
const roots = ["/sys/fs/cgroup", "/sys/fs/cgroup/memory"];
const parents = ["docker", "system.slice", "machine.slice", "libpod_parent"];

/** The control groups on this machine whose name has one of the marks, such as a container's id. */
export function controlGroupsOf(marks: ReadonlySet<string>): string[] {
  const folders = roots.flatMap((root) => parents.map((parent) => join(root, parent)));
  return folders.flatMap((folder) =>
    namesIn(folder)
      .filter((name) => [...marks].some((mark) => name.includes(mark)))
      .map((name) => join(folder, name)),
  );
}

setFlagsFromString("--expose-gc");
/** Collects all garbage of this process. */
export const collectGarbage = runInNewContext("gc") as () => void;
