import { say } from "../../command/say.ts";
import { coldCycle, dockerRun, hasDockerCommand, HELLO } from "../bare.ts";
import { interleave } from "../interleave.ts";
import { rate } from "../rate.ts";
import type { Row } from "../row.ts";
import type { World } from "../world.ts";

const CLIENTS = 8;
const PARALLEL = [1, 2, 3, 4, 6, 8];

export const throughput: Row = {
  name: "throughput",
  what: `single-use executions per second for as long as ${CLIENTS} clients ask for more`,
  goal: "≥ 0.9 × the bare engine at its best, ≥ 1.6 × docker run",
  measure: async (world) => {
    const { engine, dockerHost, image } = world;
    const bareTask = (): Promise<void> => coldCycle(engine, image);
    const workers = await bestParallelism(world, bareTask);
    await using service = await world.startService({ config: { max_queue_size: 1000 } });
    await service.warmUp(world.samples(200));
    const span = { leadInMs: world.quick ? 0 : 1500, forMs: world.quick ? 500 : 5000 };
    const side = (name: string, count: number, task: () => Promise<unknown>) => ({
      name,
      once: async () => {
        await service.settled();
        return rate(count, span, task);
      },
    });
    const sides = [
      side("Airlock", CLIENTS, () => service.execute(HELLO)),
      side(`bare engine, ${workers} at once`, workers, bareTask),
      ...(hasDockerCommand
        ? [side("docker run", workers, () => dockerRun(dockerHost, image))]
        : []),
    ];
    return await interleave("/s", sides, { warmUp: 0, rounds: world.samples(3) });
  },
  reaches: (of) =>
    of("Airlock").p50 >= 0.9 * of("bare engine").p50 &&
    (!hasDockerCommand || of("Airlock").p50 >= 1.6 * of("docker run").p50),
};

async function bestParallelism(world: World, task: () => Promise<void>): Promise<number> {
  const span = { leadInMs: 0, forMs: world.quick ? 200 : 2000 };
  const rates = [];
  for (const workers of PARALLEL)
    rates.push({ workers, perSecond: await rate(workers, span, task) });
  const list = rates.map(({ workers, perSecond }) => `${workers}: ${perSecond.toFixed(1)}/s`);
  say(`the bare engine by cycles at once: ${list.join(", ")}`);
  return rates.reduce((best, next) => (next.perSecond > best.perSecond ? next : best)).workers;
}
