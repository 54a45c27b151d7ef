import { setTimeout as sleep } from "node:timers/promises";
import { usedByContainers } from "../containers.ts";
import { cpuMsOf, storedKbOf } from "../proc.ts";
import type { Row, Series } from "../row.ts";
import type { Service } from "../service.ts";
import { callSession, openSession } from "../session.ts";
import type { World } from "../world.ts";

const COUNT = 50;
const HELD_MB = 10;
const holding = { code: `held = b"x" * ${HELD_MB}_000_000` };
/** An agent's poll waits for less, so that each window has some. */
const WINDOW_S = 20;

export const idle: Row = {
  name: "idle",
  what: `an agent without a session and with ${COUNT} idle ones: memory of its containers for each session, new and after a call whose code holds ${HELD_MB} MB; CPU time of API, agent and containers in a second, and what the API writes in it`,
  goal: `new ≤ 6 MB; after a call ≤ ${HELD_MB} + 12 MB; ${COUNT} sessions ≤ 2 × the CPU time and 1.5 × the writes of none`,
  measure: async (world) => {
    const count = world.quick ? 2 : COUNT;
    await using service = await world.startService({
      config: { container_backend: "zygote", max_sessions: count },
    });
    await service.warmUp(world.samples(50));
    const none = await windows(world, service);
    const before = await memoryMb(world, service);
    const opened = [];
    for (let n = 0; n < count; n++) opened.push(await openSession(service, { idle_timeout: null }));
    const fresh = (await memoryMb(world, service)) - before;
    const some = await windows(world, service);
    for (const id of opened) await callSession(service, id, holding);
    const used = (await memoryMb(world, service)) - before;
    const each = (name: string, megabytes: number): Series => ({
      name,
      unit: "MB",
      samples: [megabytes / count],
    });
    return [
      { name: "no session: CPU", unit: "ms", samples: none.cpuMs },
      { name: "idle sessions: CPU", unit: "ms", samples: some.cpuMs },
      { name: "no session: written", unit: "kB", samples: none.storedKb },
      { name: "idle sessions: written", unit: "kB", samples: some.storedKb },
      each("new session", fresh),
      each("session after a call", used),
    ];
  },
  reaches: (of) =>
    of("new session").p50 <= 6 &&
    of("session after").p50 <= HELD_MB + 12 &&
    of("idle sessions: CPU").p50 <= 2 * of("no session: CPU").p50 &&
    of("idle sessions: written").p50 <= 1.5 * of("no session: written").p50,
};

async function memoryMb(world: World, service: Service): Promise<number> {
  await service.settled();
  return (await usedByContainers(world, service.agentName)).memoryMb;
}

/** CPU time and writes in each second of some windows. */
async function windows(world: World, service: Service) {
  const { api, agent } = service.pids();
  const now = async () => ({
    atMs: performance.now(),
    cpuMs: cpuMsOf(api) + cpuMsOf(agent) + (await usedByContainers(world, service.agentName)).cpuMs,
    storedKb: storedKbOf(api),
  });
  const found = { cpuMs: [] as number[], storedKb: [] as number[] };
  for (let n = 0; n < world.samples(4); n++) {
    const before = await now();
    await sleep(world.quick ? 1000 : WINDOW_S * 1000);
    const after = await now();
    const seconds = (after.atMs - before.atMs) / 1000;
    found.cpuMs.push((after.cpuMs - before.cpuMs) / seconds);
    found.storedKb.push((after.storedKb - before.storedKb) / seconds);
  }
  return found;
}
