import { coldCycle, dockerRun, hasDockerCommand, HELLO } from "../bare.ts";
import { interleave, type Rounds, type Side, timed } from "../interleave.ts";
import type { Row, Series } from "../row.ts";
import type { World } from "../world.ts";

export const warm: Row = {
  name: "warm",
  what: "hello from a warm container: POST /execute to answer, persisted, single use, runc",
  goal: "p50 ≤ 12 ms, p99 ≤ 40 ms",
  measure: (world) => measureWarm(world, "runc", { warmUp: 300, rounds: 50 }),
  reaches: (of) => of("Airlock").p50 <= 12 && of("Airlock").p99 <= 40,
};

export const warmGvisor: Row = {
  name: "warm-gvisor",
  what: "the same under gVisor (runsc)",
  goal: "p50 ≤ 60 ms",
  obstacle: async ({ engine }) => {
    const { runtimes } = await engine.describe(AbortSignal.timeout(10_000));
    return runtimes.includes("runsc") ? null : "the engine has no runtime runsc";
  },
  measure: (world) => measureWarm(world, "runsc", { warmUp: 40, rounds: 20 }),
  reaches: (of) => of("Airlock").p50 <= 60,
};

async function measureWarm(
  world: World,
  runtime: string,
  { warmUp, rounds }: Rounds,
): Promise<Series[]> {
  const { engine, dockerHost, image } = world;
  await using service = await world.startService({ config: { container_runtime: runtime } });
  await service.warmUp(world.samples(warmUp));
  const airlock: Side = {
    name: "Airlock",
    perRound: 2,
    once: async () => {
      await service.settled();
      return timed(() => service.execute(HELLO));
    },
  };
  const bare: Side = {
    name: "bare engine, cold cycle",
    once: async () => {
      await service.settled();
      return timed(() => coldCycle(engine, image, runtime));
    },
  };
  const docker: Side = {
    name: "docker run",
    once: () => timed(() => dockerRun(dockerHost, image, runtime)),
  };
  const sides = [airlock, bare, ...(hasDockerCommand ? [docker] : [])];
  return await interleave("ms", sides, {
    warmUp: world.samples(4),
    rounds: world.samples(rounds),
  });
}
