import { HELLO } from "../bare.ts";
import { interleave, type Side, timed } from "../interleave.ts";
import type { Row, Series } from "../row.ts";
import { callSession, endSession, openSession } from "../session.ts";
import type { World } from "../world.ts";

const hello = { code: HELLO };

export const sessions: Row = {
  name: "sessions",
  what: "beside a hello alone, in forks and in containers: a call in a ready session, a call that starts the interpreter anew, and a new session until it is ready",
  goal: "forked: call ≤ 0.5 × hello, session ≤ 1.3 × hello, restart ≤ call + 10 ms",
  // One after the other: what a container leaves to do would disturb the next fork.
  measure: async (world) => [
    ...(await measure(world, "forked", "zygote")),
    ...(await measure(world, "containers", "engine")),
  ],
  reaches: (of) =>
    of("forked: call").p50 <= 0.5 * of("forked: hello").p50 &&
    of("forked: new session").p50 <= 1.3 * of("forked: hello").p50 &&
    of("forked: restart").p50 <= of("forked: call").p50 + 10,
};

async function measure(world: World, name: string, container_backend: string): Promise<Series[]> {
  await using service = await world.startService({ config: { container_backend } });
  await service.warmUp(world.samples(300));
  const session = await openSession(service);
  for (let n = 0; n < world.samples(100); n++) await callSession(service, session, hello);
  const opened: string[] = [];
  const side = (what: string, run: () => Promise<unknown>): Side => ({
    name: `${name}: ${what}`,
    once: async () => {
      for (const id of opened.splice(0)) await endSession(service, id);
      await service.settled();
      return timed(run);
    },
  });
  const sides = [
    side("hello", () => service.execute(HELLO)),
    side("call", () => callSession(service, session, hello)),
    side("restart and call", () => callSession(service, session, { ...hello, restart: true })),
    side("new session", async () => opened.push(await openSession(service))),
  ];
  return await interleave("ms", sides, { warmUp: world.samples(3), rounds: world.samples(40) });
}
