import { expect, test } from "vitest";
import { fileClient } from "./file-client.node.ts";

test("reads that come together leave turns to others in between, and are all answered in order", async () => {
  const client = fileClient("file::memory:");
  const slow =
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000) SELECT count(*) FROM n";
  await client.execute(slow);
  const answered: number[] = [];
  let turns = 0;
  let isDone = false;
  const turn = (): void => {
    turns += 1;
    if (!isDone) setImmediate(turn);
  };
  setImmediate(turn);
  const beganMs = performance.now();
  await Promise.all(
    Array.from({ length: 100 }, async (_, n) => {
      const { rows } = await client.execute(slow);
      expect(rows[0]?.[0]).toBe(20_000);
      answered.push(n);
    }),
  );
  const tookMs = performance.now() - beganMs;
  isDone = true;
  expect(answered).toEqual(Array.from({ length: 100 }, (_, n) => n));
  // A turn may take twice its limit and a read.
  expect(turns).toBeGreaterThan(Math.min(10, tookMs / 40));
  client.close();
});
