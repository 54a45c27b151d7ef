import { anchors, coldCycle, dockerRun, hasDockerCommand, HELLO } from "../bare.ts";
import { interleave, type Side } from "../interleave.ts";
import { rate } from "../rate.ts";
import type { Row } from "../row.ts";

const CLIENTS = 8;
/** So many clients give the highest rate on two cores. */
const OTHERS = 4;

export const throughput: Row = {
  name: "throughput",
  what: `single-use executions per second for as long as ${CLIENTS} clients ask for more; ${OTHERS} at once of what they are set against`,
  goal: "forked ≥ 5 × the bare engine, ≥ 0.8 × bwrap … python3 where bubblewrap is installed; containers ≥ 0.9 × the bare engine",
  measure: async (world) => {
    const { engine, dockerHost, image } = world;
    const start = (container_backend: string) =>
      world.startService({ config: { container_backend, max_queue_size: 1000 } });
    await using forked = await start("zygote");
    await using plain = await start("engine");
    for (const service of [forked, plain]) await service.warmUp(world.samples(200));
    const span = { leadInMs: world.quick ? 0 : 1500, forMs: world.quick ? 500 : 5000 };
    const side = (name: string, count: number, task: () => Promise<unknown>): Side => ({
      name,
      once: async () => {
        await plain.settled();
        return rate(count, span, task);
      },
    });
    const sides = [
      side("Airlock, forked", CLIENTS, () => forked.execute(HELLO)),
      side("Airlock, containers", CLIENTS, () => plain.execute(HELLO)),
      side("bare engine", OTHERS, () => coldCycle(engine, image)),
      ...(hasDockerCommand ? [side("docker run", OTHERS, () => dockerRun(dockerHost, image))] : []),
      ...anchors.map(({ name, run }) => side(name, OTHERS, run)),
    ];
    return await interleave("/s", sides, { warmUp: 0, rounds: world.samples(3) });
  },
  reaches: (of, has) =>
    of("Airlock, forked").p50 >= 5 * of("bare engine").p50 &&
    of("Airlock, containers").p50 >= 0.9 * of("bare engine").p50 &&
    (!has("bwrap") || of("Airlock, forked").p50 >= 0.8 * of("bwrap").p50),
};
