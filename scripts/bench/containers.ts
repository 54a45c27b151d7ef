import { labels } from "../../agent/sandbox/labels.ts";
import type { World } from "./world.ts";

export type Used = {
  /** Without the files that the kernel may drop. */
  readonly memoryMb: number;
  readonly cpuMs: number;
};

/** What the control groups of an agent's containers hold and have used. */
export async function usedByContainers(
  { engine, docker }: World,
  agentName: string,
): Promise<Used> {
  const found = await engine.list(labels.agentName, agentName, AbortSignal.timeout(10_000));
  const all = await Promise.all(
    found.map(({ id }) => docker.getContainer(id).stats({ stream: false, "one-shot": true })),
  );
  const used = { memoryMb: 0, cpuMs: 0 };
  for (const { memory_stats, cpu_stats } of all) {
    const { usage, stats } = memory_stats;
    // Control groups v1 and v2.
    const files = stats.total_inactive_file ?? stats.inactive_file;
    used.memoryMb += (usage - files) / 1e6;
    used.cpuMs += cpu_stats.cpu_usage.total_usage / 1e6;
  }
  return used;
}
