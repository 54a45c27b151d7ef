import { randomUUID } from "node:crypto";
import { readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { expect, vi } from "vitest";
import { labels } from "../labels.ts";
import { collectGarbage } from "./collect-garbage.ts";
import { controlGroupsOf } from "./control-groups.ts";
import { rawEngine } from "./raw-engine.ts";

/** What hostile jobs must leave as it was. */
export interface HostWatch {
  /** A host file that only its owner can read; `secret` is its content. */
  readonly canary: { readonly path: string; readonly secret: string };
  /** Fails if the canary has changed, or if a container, mount, process or control group is left. */
  isClean(): Promise<void>;
  /** Fails if the agent's process has more descriptors or memory than before. */
  isFlat(): Promise<void>;
  /** The invariant: both hold. */
  holds(): Promise<void>;
  close(): void;
}

/** Milliseconds within which everything that is being removed must be gone. */
const patienceMs = 60_000;
/** Connections that clients keep for their next requests; there are more after many at once. */
const idleConnections = 16;
/** V8 collects buffers after every 64 MiB of new ones. */
const roomBytes = 160 * 1024 * 1024;

/**
 * Watches the containers of one agent, the canary, and the agent's process (by default this one).
 * Checks processes and mounts if the engine is on this machine.
 */
export async function watchHost(agentName: string, pid = process.pid): Promise<HostWatch> {
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

  async function isClean(): Promise<void> {
    expect(stateOf(canary.path)).toEqual(planted);
    await vi.waitFor(async () => expect(await leftovers()).toEqual([]), soon);
  }

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
    async holds() {
      await isClean();
      await isFlat();
    },
    close() {
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
  for (const mount of read("/proc/mounts").split("\n")) note("mount", mount);
  for (const pid of readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
    const text = read(`/proc/${pid}/cmdline`) + read(`/proc/${pid}/cgroup`);
    note("process", text.replaceAll("\0", " "));
  }
  for (const path of controlGroupsOf(marks)) traces.push(`control group: ${path}`);
  return traces;
}

/** Processes come and go during the check. */
function read(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
}

function stateOf(path: string) {
  const { mtimeNs, ctimeNs, mode, size, ino, nlink } = statSync(path, { bigint: true });
  return { content: readFileSync(path, "utf8"), mtimeNs, ctimeNs, mode, size, ino, nlink };
}

function countDescriptors(pid: number): number {
  return readdirSync(`/proc/${pid}/fd`).length;
}

/**
 * Memory in bytes: of another process what is resident, of this one what is reachable. Garbage is collected, which
 * is slow, only if there are more than `tooMuch` bytes with it.
 */
function memoryOf(pid: number, tooMuch = 0): number {
  if (pid !== process.pid) return 1024 * Number(/VmRSS:\s+(\d+)/.exec(statusOf(pid))?.[1]);
  if (usedBytes() >= tooMuch) collectGarbage();
  return usedBytes();
}

function usedBytes(): number {
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}

function statusOf(pid: number): string {
  return readFileSync(`/proc/${pid}/status`, "utf8");
}
