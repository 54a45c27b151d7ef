import { anchors, coldCycle, dockerRun, hasDockerCommand, HELLO } from "../bare.ts";
import { interleave, type Side, timed } from "../interleave.ts";
import type { Row } from "../row.ts";
import type { Service } from "../service.ts";

const BURST = 200;

export const forked: Row = {
  name: "forked",
  what: "hello, POST /execute to answer: jobs forked alone, one after the other, and 200 at once; in a container of its own; under gVisor where the engine has it",
  goal: "alone p50 ≤ 12 ms, p95 ≤ 16 ms; one after the other p50 ≤ 14 ms; 200 at once ≤ 3 s; gVisor p50 ≤ 60 ms",
  measure: async (world) => {
    const { engine, dockerHost, image } = world;
    const { runtimes } = await engine.describe(AbortSignal.timeout(10_000));
    await using ends = new AsyncDisposableStack();
    const start = async (config: Record<string, string | number>, warmUp: number) => {
      const service = ends.use(await world.startService({ config }));
      await service.warmUp(world.samples(warmUp));
      return service;
    };
    const forks = await start({ container_backend: "zygote", max_queue_size: 1000 }, 300);
    const containers = await start({ container_backend: "engine" }, 300);
    const gvisor = runtimes.includes("runsc")
      ? [alone("gVisor", await start({ container_runtime: "runsc" }, 40))]
      : [];
    const sides: Side[] = [
      alone("alone", forks),
      {
        name: "one after the other",
        perRound: 20,
        once: () => timed(() => forks.execute(HELLO)),
      },
      { name: "200 at once", once: () => timed(() => burst(forks)) },
      ...anchors.map(({ name, run }) => ({ name, once: () => timed(run) })),
      alone("in a container", containers),
      ...gvisor,
      {
        name: "bare engine, cold cycle",
        once: async () => {
          await containers.settled();
          return timed(() => coldCycle(engine, image));
        },
      },
      ...(hasDockerCommand
        ? [{ name: "docker run", once: () => timed(() => dockerRun(dockerHost, image)) }]
        : []),
    ];
    return await interleave("ms", sides, { warmUp: 1, rounds: world.samples(20) });
  },
  reaches: (of, has) =>
    of("alone").p50 <= 12 &&
    of("alone").p95 <= 16 &&
    of("one after").p50 <= 14 &&
    of("200 at once").p50 <= 3000 &&
    (!has("gVisor") || of("gVisor").p50 <= 60),
};

function alone(name: string, service: Service): Side {
  return {
    name,
    once: async () => {
      await service.settled();
      return timed(() => service.execute(HELLO));
    },
  };
}

async function burst(service: Service): Promise<void> {
  await Promise.all(Array.from({ length: BURST }, () => service.execute(HELLO)));
}
