import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { ensureScienceImage } from "../../setup/images/science-image.ts";
import { coldCycle, HELLO } from "../bare.ts";
import { interleave, type Side, timed } from "../interleave.ts";
import { rate } from "../rate.ts";
import type { Row } from "../row.ts";
import type { Service } from "../services/service.ts";

const forks = { container_backend: "zygote", max_queue_size: 1000 };
const CLIENTS = 8;
const BURST = 200;

/** What a process costs without Airlock: Python alone, and with bubblewrap's namespaces around it. */
const bwrap = "/usr/bin/bwrap";
/** Debian's own: a name on the PATH may be a script that looks for an interpreter first. */
const python = "/usr/bin/python3";
const isolated = "--unshare-all --ro-bind / / --dev /dev --proc /proc --tmpfs /tmp".split(" ");
const anchors: readonly (readonly [name: string, command: string, args: readonly string[]])[] = [
  ...(existsSync(bwrap)
    ? [["bwrap … python3", bwrap, [...isolated, python, "-c", HELLO]] as const]
    : []),
  ["python3, not isolated", python, ["-c", HELLO]],
];

async function run(command: string, args: readonly string[]): Promise<void> {
  const [code] = (await once(spawn(command, args, { stdio: "ignore" }), "exit")) as [number];
  if (code !== 0) throw new Error(`${command} ended with ${code}`);
}

export const forkedThroughput: Row = {
  name: "forked-throughput",
  what: `single-use executions per second by ${CLIENTS} clients, jobs forked`,
  goal: "≥ 5 × the bare engine; ≥ 0.8 × bwrap … python3 where bubblewrap is installed",
  measure: async (world) => {
    await using forked = await world.startService({ config: forks });
    await using plain = await world.startService({
      config: { container_backend: "engine", max_queue_size: 1000 },
    });
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
      side("bare engine", 4, () => coldCycle(world.engine, world.image)),
      ...anchors.map(([name, command, args]) => side(name, 4, () => run(command, args))),
    ];
    return await interleave("/s", sides, { warmUp: 0, rounds: world.samples(3) });
  },
  reaches: (of) =>
    of("Airlock, forked").p50 >= 5 * of("bare engine").p50 &&
    (!existsSync(bwrap) || of("Airlock, forked").p50 >= 0.8 * of("bwrap").p50),
};

export const forked: Row = {
  name: "forked",
  what: "hello, jobs forked: alone, one after the other, and 200 at once",
  goal: "alone p50 ≤ 12 ms, p95 ≤ 16 ms; one after the other p50 ≤ 14 ms; 200 at once ≤ 3 s",
  measure: async (world) => {
    await using service = await world.startService({ config: forks });
    await service.warmUp(world.samples(300));
    const sides: Side[] = [
      {
        name: "alone",
        once: async () => {
          await service.settled();
          return timed(() => service.execute(HELLO));
        },
      },
      {
        name: "one after the other",
        perRound: 20,
        once: () => timed(() => service.execute(HELLO)),
      },
      { name: "200 at once", once: () => timed(() => burst(service)) },
      ...anchors.map(([name, command, args]) => ({
        name,
        once: () => timed(() => run(command, args)),
      })),
    ];
    return await interleave("ms", sides, { warmUp: 1, rounds: world.samples(20) });
  },
  reaches: (of) =>
    of("alone").p50 <= 12 && of("one after").p50 <= 14 && of("200 at once").p50 <= 3000,
};

async function burst(service: Service): Promise<void> {
  await Promise.all(Array.from({ length: BURST }, () => service.execute(HELLO)));
}

export const forkedPreload: Row = {
  name: "forked-preload",
  what: "`import numpy, pandas` in a fork of an interpreter that has imported both",
  goal: "p50 ≤ that of hello + 3 ms",
  measure: async (world) => {
    const image = JSON.stringify(await ensureScienceImage(world.docker));
    await using service = await world.startService({
      config: forks,
      toml: `[job_types.preloaded]\nbase_image = ${image}\npreload = ["numpy", "pandas"]\n`,
    });
    for (const job_type of ["default", "preloaded"]) {
      await service.warmUp(world.samples(60), { job_type });
    }
    const side = (name: string, code: string, job_type: string): Side => ({
      name,
      perRound: 5,
      once: () => timed(() => service.execute(code, { job_type })),
    });
    const sides = [
      side("preloaded", `import numpy, pandas\n${HELLO}`, "preloaded"),
      side("hello", HELLO, "default"),
    ];
    return await interleave("ms", sides, { warmUp: 2, rounds: world.samples(20) });
  },
  reaches: (of) => of("preloaded").p50 <= of("hello").p50 + 3,
};
