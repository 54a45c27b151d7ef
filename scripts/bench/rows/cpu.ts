import { readFileSync } from "node:fs";
import { labels } from "../../../agent/sandbox/labels.ts";
import { ensureScienceImage } from "../../setup/images/science-image.ts";
import { HELLO } from "../bare.ts";
import { cpuMsOf, msPerTick } from "../proc.ts";
import type { Row, Series } from "../row.ts";
import type { Service } from "../service.ts";
import type { World } from "../world.ts";

export const cpu: Row = {
  name: "cpu",
  what: "CPU time of each hello in each process, one job after the other",
  goal: "preloaded ≤ hello + 3 ms",
  measure: async (world) => {
    const image = JSON.stringify(await ensureScienceImage(world.docker));
    const preloaded = `[job_types.preloaded]\nbase_image = ${image}\npreload = ["numpy", "pandas"]\n`;
    await using forked = await world.startService({
      config: { container_backend: "zygote" },
      toml: preloaded,
    });
    await using plain = await world.startService({ config: { container_backend: "engine" } });
    return [
      ...(await measure(world, forked, "forked", "default")),
      ...(await measure(world, forked, "forked, numpy and pandas preloaded", "preloaded")),
      ...(await measure(world, plain, "containers", "default")),
    ];
  },
  reaches: (of) => of("forked, numpy and pandas preloaded: job").p50 <= of("forked: job").p50 + 3,
};

async function measure(
  world: World,
  service: Service,
  name: string,
  job_type: string,
): Promise<Series[]> {
  const jobs = world.quick ? 2 : 100;
  await service.warmUp(world.samples(200), { job_type });
  const samples = new Map<string, number[]>();
  for (let round = 0; round < world.samples(5); round++) {
    await service.settled();
    const before = await used(world, service);
    const machineBefore = ofMachine();
    for (let n = 0; n < jobs; n++) await service.execute(HELLO, { job_type });
    const machine = ofMachine() - machineBefore;
    const after = await used(world, service);
    // It includes the engine, the kernel and the client, which have no series of their own.
    before.set("whole machine", 0);
    after.set("whole machine", machine);
    for (const [who, ms] of after) {
      const own = samples.get(who) ?? [];
      samples.set(who, [...own, (ms - (before.get(who) ?? 0)) / jobs]);
    }
  }
  return [...samples].map(([who, each]) => ({
    name: `${name}: ${who}`,
    unit: "ms",
    samples: each,
  }));
}

/** CPU time in ms so far. */
async function used({ docker }: World, service: Service): Promise<Map<string, number>> {
  const { api, agent } = service.pids();
  const found = new Map([
    ["API", cpuMsOf(api)],
    ["agent", cpuMsOf(agent)],
  ]);
  const filters = { label: [`${labels.agentName}=${service.agentName}`] };
  const all = await docker.listContainers({ filters });
  const mother = all.find(({ Labels }) => Labels[labels.leaseId]?.startsWith("mother-"));
  if (mother) {
    const container = docker.getContainer(mother.Id);
    const { cpu_stats } = await container.stats({ stream: false, "one-shot": true });
    const own = cpuMsOf((await container.inspect()).State.Pid);
    found.set("mother", own);
    found.set("job, with its forks", cpu_stats.cpu_usage.total_usage / 1e6 - own);
  }
  return found;
}

/** All but idle and iowait. */
function ofMachine(): number {
  const [line = ""] = readFileSync("/proc/stat", "utf8").split("\n");
  const [user, nice, system, , , irq, softirq] = line.trim().split(/\s+/).slice(1).map(Number);
  return (user! + nice! + system! + irq! + softirq!) * msPerTick;
}
