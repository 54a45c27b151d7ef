import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { HELLO } from "../bare.ts";
import type { Row, Series } from "../row.ts";
import type { Service } from "../services/service.ts";
import { durations, type Event, steps } from "../trace/steps.ts";
import type { World } from "../world.ts";

export const trace: Row = {
  name: "trace",
  what: "where the milliseconds of warm hello go",
  goal: "an account of each step",
  measure: async (world) => {
    const folder = mkdtempSync(join(tmpdir(), "airlock-trace-"));
    const probe = new URL("../trace/probe.ts", import.meta.url).href;
    try {
      await using service = await world.startService({
        env: { NODE_OPTIONS: `--import ${probe}`, BENCH_TRACE: folder },
      });
      return await traceRuns(world, service, folder);
    } finally {
      rmSync(folder, { recursive: true });
    }
  },
};

async function traceRuns(world: World, service: Service, folder: string): Promise<Series[]> {
  await service.warmUp(world.samples(300));
  const spans: { beganMs: number; endedMs: number }[] = [];
  for (let i = 0; i < world.samples(60); i++) {
    await service.settled();
    const beganMs = nowMs();
    await service.execute(HELLO);
    spans.push({ beganMs, endedMs: nowMs() });
  }
  const events = readEvents(folder);
  const runs = spans.flatMap(({ beganMs, endedMs }) => {
    const end: Event = [endedMs, "client has the answer"];
    const own = events.filter(([atMs]) => atMs >= beganMs && atMs <= endedMs);
    return [durations([...own, end], beganMs) ?? []].filter(({ length }) => length > 0);
  });
  const total = runs.map((taken) => taken.reduce((sum, ms) => sum + ms, 0));
  return [
    { name: "all", unit: "ms", samples: total },
    ...steps.map(({ name }, i) => ({
      name,
      unit: "ms" as const,
      samples: runs.map((taken) => taken[i] ?? 0),
    })),
  ];
}

function nowMs(): number {
  return Number(process.hrtime.bigint()) / 1e6;
}

function readEvents(folder: string): Event[] {
  return readdirSync(folder).flatMap((name) =>
    readFileSync(join(folder, name), "utf8")
      .split("\n")
      .filter((line) => line !== "")
      .map((line) => JSON.parse(line) as Event),
  );
}
