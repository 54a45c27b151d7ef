import { ensureScienceImage } from "../../setup/images/science-image.ts";
import { HELLO } from "../bare.ts";
import { interleave, type Side, timed } from "../interleave.ts";
import type { Row } from "../row.ts";
import type { Service } from "../services/service.ts";

const IMPORT = `import numpy, pandas\n${HELLO}`;

export const preload: Row = {
  name: "preload",
  what: "`import numpy, pandas` in a warm container that has preloaded both",
  goal: "p50 ≤ that of warm hello + 5 ms",
  measure: async (world) => {
    const image = JSON.stringify(await ensureScienceImage(world.docker));
    await using service = await world.startService({
      toml: `[job_types.preloaded]
base_image = ${image}
preload = ["numpy", "pandas"]
[job_types.plain]
base_image = ${image}
`,
    });
    for (const job_type of ["default", "preloaded", "plain"]) {
      await service.warmUp(world.samples(30), { job_type });
    }
    const sides = [
      side(service, "preloaded", IMPORT, "preloaded"),
      side(service, "hello", HELLO, "default"),
      side(service, "imported by the job", IMPORT, "plain"),
    ];
    const rounds = { warmUp: world.samples(4), rounds: world.samples(20) };
    return await interleave("ms", sides, rounds);
  },
  reaches: (of) => of("preloaded").p50 <= of("hello").p50 + 5,
};

function side(service: Service, name: string, code: string, jobType: string): Side {
  return {
    name,
    once: async () => {
      await service.settled();
      return timed(() => service.execute(code, { job_type: jobType }));
    },
  };
}
