import { expect, test } from "vitest";
import { measureRow } from "../results.ts";
import type { World } from "../world.ts";
import { apiBatch } from "./api-batch.ts";
import { idleWatchers, watchersOfOne } from "./watchers.ts";

/** These rows need no container engine. */
const world = { quick: true } as World;

test.each([apiBatch, idleWatchers, watchersOfOne])("$name is measured", async (row) => {
  const { series } = await measureRow(row, world, { perMinute: 0, isHigh: false });
  for (const { name, max } of series) expect([name, max > 0]).toEqual([name, true]);
});
