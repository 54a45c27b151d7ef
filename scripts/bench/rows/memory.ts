import { setTimeout as sleep } from "node:timers/promises";
import { labels } from "../../../agent/sandbox/labels.ts";
import type { PoolStats } from "../../../shared/wire/health.ts";
import { peakMbOf } from "../proc.ts";
import type { Row, Series } from "../row.ts";
import type { Service } from "../service.ts";
import type { World } from "../world.ts";

const MiB = 1024 ** 2;
const jobs = 20;
/** Long enough for all to run at once. */
const sleepS = 15;
const hello = `print("hello", flush=True)\nimport time\ntime.sleep(${sleepS})`;

export const memory: Row = {
  name: "memory",
  what: `memory of the agent's containers for each running hello, with ${jobs} at once; the agent's own, resident, before and after a job has written 10 GB to stdout`,
  goal: "forked ≤ 5 MB; agent's peak ≤ 150 MB",
  measure: async (world) => [
    await ofContainers(world, "forked", "zygote"),
    await ofContainers(world, "in containers", "engine"),
    ...(await ofAgent(world)),
  ],
  reaches: (of) => of("forked").p50 <= 5 && of("agent, peak").max <= 150,
};

async function ofAgent(world: World): Promise<Series[]> {
  await using service = await world.startService();
  const { agent } = service.pids();
  const before = peakMbOf(agent);
  const chunks = world.quick ? 256 : 10 * 1024;
  const code = `import os\nchunk = b"x" * ${MiB}\nfor _ in range(${chunks}): os.write(1, chunk)`;
  await service.execute(code, { timeout: 240 });
  return [
    { name: "agent, peak", unit: "MB", samples: [peakMbOf(agent)] },
    { name: "agent, before the job", unit: "MB", samples: [before] },
  ];
}

async function ofContainers(world: World, name: string, backend: string): Promise<Series> {
  await using service = await world.startService({
    config: { container_backend: backend, max_workers: jobs, warm_pool_size: 0 },
  });
  await service.warmUp(world.samples(20));
  const samples: number[] = [];
  for (let round = 0; round < world.samples(3); round++) {
    await service.settled();
    const before = await containersBytes(world, service.agentName);
    const several = Array.from({ length: jobs }, () => service.execute(hello, { timeout: 60 }));
    const running = Promise.all(several);
    await untilAllRun(service);
    const after = await containersBytes(world, service.agentName);
    await running;
    samples.push((after - before) / jobs / 1e6);
  }
  return { name, unit: "MB", samples };
}

async function untilAllRun({ url }: Service): Promise<void> {
  for (;;) {
    const { workers } = (await (await fetch(`${url}/pool/stats`)).json()) as PoolStats;
    if (workers.running === jobs) break;
    await sleep(100);
  }
  // A job that was leased may not have printed yet.
  await sleep(1000);
}

/** What the control groups of an agent's containers hold, without the files that the kernel may drop. */
async function containersBytes({ engine, docker }: World, agentName: string): Promise<number> {
  const found = await engine.list(labels.agentName, agentName, AbortSignal.timeout(10_000));
  const all = await Promise.all(
    found.map(({ id }) => docker.getContainer(id).stats({ stream: false, "one-shot": true })),
  );
  return all.reduce((sum, { memory_stats: { usage, stats } }) => {
    // Control groups v1 and v2.
    const files = stats.total_inactive_file ?? stats.inactive_file;
    return sum + usage - files;
  }, 0);
}
