import { expect, test } from "vitest";
import { connectEngine } from "../../../agent/engine/engine.ts";
import { labels } from "../../../agent/sandbox/sandbox.ts";
import { readConfig } from "../../operate/command.ts";
import { connect } from "../../setup/engine.ts";
import { setUp } from "../../setup/set-up.ts";
import { childrenOf } from "../../testing/machine.ts";
import { measureRow } from "./results.ts";
import { rows } from "./rows.ts";
import { createWorld } from "./world.ts";

/** The others need an image with numpy, or minutes. */
const measured = rows.filter(({ name }) =>
  ["forked", "throughput", "api", "fleet", "remote", "live", "turns", "bytes", "calls"].includes(
    name,
  ),
);

test.each(measured)("$name is measured, and leaves nothing behind", async (row) => {
  const { dockerHost, image } = await setUp(readConfig(process.env));
  const engine = connectEngine(dockerHost);
  const docker = connect(dockerHost);
  const world = createWorld({ engine, docker, dockerHost, image, quick: true });
  const before = new Set(childrenOf(process.pid));
  const { series } = await measureRow(row, world, { perMinute: 0, isHigh: false });
  // On a busy machine no cycle may end in the half second of a quick rate.
  for (const { name, count, min } of series)
    expect([name, count > 0, min >= 0]).toEqual([name, true, true]);

  expect(childrenOf(process.pid).filter((pid) => !before.has(pid))).toEqual([]);
  const all = await docker.listContainers({ all: true });
  const own = all.filter(
    ({ Labels }) =>
      Labels["io.airlock.bench"] || Labels[labels.agentName]?.startsWith(`bench-${process.pid}-`),
  );
  expect(own).toEqual([]);
});
