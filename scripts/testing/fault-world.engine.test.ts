import { expect, test } from "vitest";
import { containersOf } from "../../agent/sandbox/testing/raw-engine.ts";
import { agentName, startFaultWorld } from "./fault-world.ts";

test("a world removes the containers of its agents, and leaves those of others alone", async () => {
  const name = agentName("left");
  await using other = await startFaultWorld();
  const others = agentName("other");
  {
    await using world = await startFaultWorld();
    for (const [one, its] of [
      [world, name],
      [other, others],
    ] as const) {
      await one.startAgent(its);
      const id = await one.submit("import time; time.sleep(600)", {}, { timeout: 900 });
      await one.untilBegun(id);
      expect(await containersOf(its)).not.toEqual([]);
    }
  }
  expect(await containersOf(name)).toEqual([]);
  expect(await containersOf(others)).not.toEqual([]);
});
