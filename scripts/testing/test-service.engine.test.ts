import { expect, test } from "vitest";
import { containersOf } from "../../agent/sandbox/testing/raw-engine.ts";
import { startTestService } from "./test-service.ts";

test("a service removes the containers of its agents, and leaves those of others alone", async () => {
  await using other = await startTestService();
  const names: string[] = [];
  {
    await using service = await startTestService();
    for (const one of [service, other]) {
      const agent = await one.startAgent();
      const id = await one.submit("import time; time.sleep(600)", {}, { timeout: 900 });
      await one.untilBegun(id);
      expect(await containersOf(agent.name)).not.toEqual([]);
      names.push(agent.name);
    }
  }
  expect(await containersOf(names[0]!)).toEqual([]);
  expect(await containersOf(names[1]!)).not.toEqual([]);
});
