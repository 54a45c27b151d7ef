import { expect, test } from "vitest";
import { measureOperations, operations } from "./operations.ts";

test("operations are counted at the database: a submission writes, a read does not", async () => {
  const costs = await measureOperations();
  expect(Object.keys(costs).toSorted()).toEqual(Object.keys(operations).toSorted());
  for (const { calls, writes, rowsRead } of Object.values(costs)) {
    expect(calls).toBeGreaterThanOrEqual(Math.max(1, writes));
    expect(rowsRead).toBeGreaterThan(0);
  }
  const { submit, claim, result, look, news, wait, idlePoll } = costs;
  for (const { writes, rowsWritten } of [submit, claim, result]) {
    expect(rowsWritten).toBeGreaterThan(writes);
    expect(writes).toBeGreaterThanOrEqual(1);
  }
  expect([look.writes, news.writes]).toEqual([0, 0]);
  expect([submit.wakes, wait.wakes, look.wakes]).toEqual([1, 1, 0]);
  expect(idlePoll.writes).toBeLessThan(idlePoll.calls / 4);
});
