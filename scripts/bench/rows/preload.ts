import { ensureScienceImage } from "../../setup/images/science-image.ts";
import { HELLO } from "../bare.ts";
import { interleave, type Side, timed } from "../interleave.ts";
import type { Row } from "../row.ts";
import type { Service } from "../service.ts";

const IMPORT = `import numpy, pandas\n${HELLO}`;

export const preload: Row = {
  name: "preload",
  what: "`import numpy, pandas` where the interpreter has imported both before the job came: forked, by what is listed and by auto, and in a container",
  goal: "preloaded p50 ≤ that of hello + 5 ms; auto ≤ hello + 15 ms",
  measure: async (world) => {
    const image = JSON.stringify(await ensureScienceImage(world.docker));
    const toml = `[job_types.preloaded]
base_image = ${image}
preload = ["numpy", "pandas"]
[job_types.auto]
base_image = ${image}
[job_types.plain]
base_image = ${image}
preload = []
`;
    const start = (container_backend: string) =>
      world.startService({ config: { container_backend }, toml });
    await using forked = await start("zygote");
    await using containers = await start("engine");
    const sides = [
      side(forked, "preloaded", IMPORT, "preloaded"),
      side(forked, "hello", HELLO, "default"),
      side(forked, "auto", IMPORT, "auto"),
      side(forked, "imported by the job", IMPORT, "plain"),
      side(containers, "preloaded, in a container", IMPORT, "preloaded"),
    ];
    for (const { warmUp } of sides) await warmUp(world.samples(30));
    const rounds = { warmUp: world.samples(4), rounds: world.samples(20) };
    return await interleave("ms", sides, rounds);
  },
  reaches: (of) =>
    of("preloaded").p50 <= of("hello").p50 + 5 && of("auto").p50 <= of("hello").p50 + 15,
};

function side(
  service: Service,
  name: string,
  code: string,
  job_type: string,
): Side & { warmUp: (times: number) => Promise<void> } {
  return {
    name,
    warmUp: (times) => service.warmUp(times, { job_type }),
    once: async () => {
      await service.settled();
      return timed(() => service.execute(code, { job_type }));
    },
  };
}
