import { setTimeout as sleep } from "node:timers/promises";
import type { PoolStats } from "../../../shared/wire/health.ts";
import { usedByContainers } from "../containers.ts";
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
    const before = await usedByContainers(world, service.agentName);
    const several = Array.from({ length: jobs }, () => service.execute(hello, { timeout: 60 }));
    const running = Promise.all(several);
    await untilAllRun(service);
    const after = await usedByContainers(world, service.agentName);
    await running;
    samples.push((after.memoryMb - before.memoryMb) / jobs);
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
