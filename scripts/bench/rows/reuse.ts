import { HELLO } from "../bare.ts";
import { interleave } from "../interleave.ts";
import { rate } from "../rate.ts";
import type { Row } from "../row.ts";

const CLIENTS = 8;

export const reuse: Row = {
  name: "reuse",
  what: `executions per second in containers that serve many jobs of one key, ${CLIENTS} clients`,
  goal: "≥ 150/s end to end",
  measure: async (world) => {
    await using service = await world.startService({
      config: { max_queue_size: 1000 },
      toml: "[job_types.reused]\nreuse = 1000000\n",
    });
    const side = {
      name: "Airlock, reuse",
      once: () =>
        rate(CLIENTS, { leadInMs: world.quick ? 0 : 1000, forMs: world.quick ? 300 : 2500 }, () =>
          service.execute(HELLO, { job_type: "reused" }),
        ),
    };
    return await interleave("/s", [side], { warmUp: world.samples(1), rounds: world.samples(5) });
  },
  reaches: (of) => of("Airlock").p50 >= 150,
};
