import { coldCycle, HELLO } from "../bare.ts";
import { interleave, timed } from "../interleave.ts";
import type { Row } from "../row.ts";

export const cold: Row = {
  name: "cold",
  what: "hello with an empty pool: POST /execute to answer, the container started for it",
  goal: "p50 ≤ that of the bare engine + 15 ms",
  measure: async (world) => {
    await using service = await world.startService({
      config: { container_backend: "engine", warm_pool_size: 0 },
    });
    await service.warmUp(world.samples(40));
    const sides = [
      {
        name: "Airlock",
        once: async () => {
          await service.settled();
          return timed(() => service.execute(HELLO));
        },
      },
      {
        name: "bare engine, cold cycle",
        once: async () => {
          await service.settled();
          return timed(() => coldCycle(world.engine, world.image));
        },
      },
    ];
    const rounds = { warmUp: world.samples(3), rounds: world.samples(30) };
    return await interleave("ms", sides, rounds);
  },
  reaches: (of) => of("Airlock").p50 <= of("bare engine").p50 + 15,
};
