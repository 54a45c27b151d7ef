import { readdirSync } from "node:fs";
import { tmpdir } from "node:os";
import { expect, test } from "vitest";
import { connectEngine } from "../../agent/engine/engine.ts";
import { labels } from "../../agent/sandbox/labels.ts";
import { measureRow } from "../bench/results.ts";
import { cold } from "../bench/rows/cold.ts";
import { live, liveProcesses } from "../bench/rows/live.ts";
import { trace } from "../bench/rows/trace.ts";
import { worker } from "../bench/rows/worker.ts";
import { steps } from "../bench/trace/steps.ts";
import { createWorld } from "../bench/world.ts";
import { readConfig } from "../command/config.ts";
import { connect } from "../setup/engine/connect.ts";
import { setUp } from "../setup/set-up.ts";
import { childrenOf } from "../testing/children-of.ts";

const load = { perMinute: 0, isHigh: false };

async function quickWorld() {
  const { dockerHost, image } = await setUp(readConfig(process.env));
  const engine = connectEngine(dockerHost);
  return createWorld({ engine, docker: connect(dockerHost), dockerHost, image, quick: true });
}

test.each([
  [cold, ["Airlock", "bare engine, cold cycle"]],
  [worker, ["workerd and sqld", "Node and a file"]],
  [live, ["print to client"]],
  [liveProcesses, ["print to client"]],
])("$name is measured against real containers, and leaves nothing behind", async (row, sides) => {
  const world = await quickWorld();
  const before = new Set(childrenOf(process.pid));
  const { series } = await measureRow(row, world, load);
  expect(series.map(({ name, count }) => [name, count])).toEqual(sides.map((name) => [name, 2]));
  for (const { min } of series) expect(min).toBeGreaterThan(0);

  expect(childrenOf(process.pid).filter((pid) => !before.has(pid))).toEqual([]);
  const all = await world.docker.listContainers({ all: true });
  const own = all.filter(
    ({ Labels }) =>
      Labels["io.airlock.bench"] || Labels[labels.agentName]?.startsWith(`bench-${process.pid}-`),
  );
  expect(own).toEqual([]);
});

test("the trace of warm runs accounts for all of their time", async () => {
  const traces = (): string[] =>
    readdirSync(tmpdir()).filter((name) => name.startsWith("airlock-trace-"));
  const before = traces();
  const { series } = await measureRow(trace, await quickWorld(), load);
  expect(series.map(({ name }) => name)).toEqual(["all", ...steps.map(({ name }) => name)]);
  const [all, ...parts] = series;
  expect(all?.count).toBeGreaterThan(0);
  for (const { count } of parts) expect(count).toBe(all?.count);
  expect(traces()).toEqual(before);
});
