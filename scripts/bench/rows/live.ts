import { printTimes } from "../live/print-times.ts";
import { startProcesses, startWorkerService } from "../services/remote-service.ts";
import type { Row } from "../row.ts";
import type { World } from "../world.ts";

type Start = (world: World) => Promise<AsyncDisposable & { readonly url: string }>;

/** Time from a print of a running job to a client that follows it by Server-Sent Events. */
function row(name: string, where: string, mostMs: number, start: Start): Row {
  return {
    name,
    what: `a running job's print to the client that follows it: ${where}`,
    goal: `p50 ≤ ${mostMs} ms`,
    measure: async (world) => {
      await using service = await start(world);
      await printTimes(service.url, world.samples(20));
      const samples = await printTimes(service.url, world.samples(150));
      return [{ name: "print to client", unit: "ms", samples }];
    },
    reaches: (of) => of("print to client").p50 <= mostMs,
  };
}

const obstacle = (): string | null =>
  process.platform === "linux" && process.arch === "x64"
    ? null
    : "npm has a libSQL server for Linux on x64 alone";

export const live = row("live", "one API process over a file", 40, (world) => world.startService());

export const liveProcesses: Row = {
  ...row(
    "live-processes",
    "two API processes over sqld, the agent at the other one",
    150,
    (world) => startProcesses(world.engine, world.dockerHost),
  ),
  obstacle,
};

export const liveWorker: Row = {
  ...row("live-worker", "workerd, sqld and a Durable Object", 150, (world) =>
    startWorkerService(world.engine, world.dockerHost),
  ),
  obstacle,
};
