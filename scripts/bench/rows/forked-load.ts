import { setTimeout as sleep } from "node:timers/promises";
import { labels } from "../../../agent/sandbox/labels.ts";
import type { PoolStats } from "../../../shared/wire/health.ts";
import { interleave, type Side, timed } from "../interleave.ts";
import type { Row, Series } from "../row.ts";
import type { Service } from "../services/service.ts";
import type { World } from "../world.ts";

const floods = 8;
const tenMegabytes = `import sys\nfor _ in range(100): sys.stdout.write("x" * 99_999 + "\\n")`;

export const forkedStdout: Row = {
  name: "forked-stdout",
  what: `${floods} jobs at once that write 10 MB to stdout each: time until all are answered`,
  goal: "forked no slower than in containers",
  measure: async (world) => {
    const config = { max_workers: floods, warm_pool_size: floods };
    await using forked = await world.startService({
      config: { ...config, container_backend: "zygote" },
    });
    await using plain = await world.startService({
      config: { ...config, container_backend: "engine" },
    });
    const side = (name: string, service: Service): Side => ({
      name,
      once: async () => {
        await plain.settled();
        return timed(() => Promise.all(several(floods, () => service.execute(tenMegabytes))));
      },
    });
    const sides = [side("forked", forked), side("in containers", plain)];
    return await interleave("ms", sides, { warmUp: 1, rounds: world.samples(10) });
  },
  reaches: (of) => of("forked").p50 <= of("in containers").p50,
};

const jobs = 20;
/** Long enough for all to run at once. */
const sleepS = 15;
const hello = `print("hello", flush=True)\nimport time\ntime.sleep(${sleepS})`;

export const forkedMemory: Row = {
  name: "forked-memory",
  what: `memory of the agent's containers for each running hello, with ${jobs} at once`,
  goal: "forked ≤ 5 MB",
  measure: async (world) => [
    await memoryOf(world, "forked", "zygote"),
    await memoryOf(world, "in containers", "engine"),
  ],
  reaches: (of) => of("forked").p50 <= 5,
};

async function memoryOf(world: World, name: string, backend: string): Promise<Series> {
  await using service = await world.startService({
    config: { container_backend: backend, max_workers: jobs, warm_pool_size: 0 },
  });
  await service.warmUp(world.samples(20));
  const samples: number[] = [];
  for (let round = 0; round < world.samples(3); round++) {
    await service.settled();
    const before = await containersBytes(world, service.agentName);
    const running = Promise.all(several(jobs, () => service.execute(hello, { timeout: 60 })));
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

function several<T>(count: number, task: () => Promise<T>): Promise<T>[] {
  return Array.from({ length: count }, task);
}
