import { HELLO } from "../bare.ts";
import type { Client } from "../services/client.ts";
import { interleave, type Side, timed } from "../interleave.ts";
import type { Row } from "../row.ts";
import { startWorkerService } from "../services/remote-service.ts";

export const worker: Row = {
  name: "worker",
  what: "warm hello through the worker: workerd and a libSQL server (sqld), with an agent here",
  goal: "none set",
  obstacle: () =>
    process.platform === "linux" && process.arch === "x64"
      ? null
      : "npm has a libSQL server for Linux on x64 alone",
  measure: async (world) => {
    await using edge = await startWorkerService(world.engine, world.dockerHost);
    await using node = await world.startService();
    const clients = { "workerd and sqld": edge, "Node and a file": node };
    for (const client of Object.values(clients)) await client.warmUp(world.samples(100));
    const sides = Object.entries(clients).map(([name, client]) => side(name, client));
    return await interleave("ms", sides, { warmUp: world.samples(4), rounds: world.samples(50) });
  },
};

function side(name: string, client: Client): Side {
  return {
    name,
    once: async () => {
      await client.settled();
      return timed(() => client.execute(HELLO));
    },
  };
}
