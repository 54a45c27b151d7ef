import { expect, test } from "vitest";
import { fileClient } from "./file-client.node.ts";

const slow =
  "SELECT count(*) FROM (WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200000) SELECT i FROM n)";

test("reads that arrive together let others run in between, and are answered in order", async () => {
  const client = fileClient("file::memory:");
  await client.execute(slow);
  const answered: number[] = [];
  let ticks = 0;
  let isDone = false;
  const tick = (): void => {
    ticks += 1;
    if (!isDone) setImmediate(tick);
  };
  setImmediate(tick);
  await Promise.all(
    Array.from({ length: 50 }, async (_, n) => {
      const { rows } = await client.execute(slow);
      expect(rows[0]?.[0]).toBe(200_000);
      answered.push(n);
    }),
  );
  isDone = true;
  expect(answered).toEqual(Array.from({ length: 50 }, (_, n) => n));
  expect(ticks).toBeGreaterThan(10);
  client.close();
});

test("a reader of many pieces waits behind the others for each piece", async () => {
  const client = fileClient("file::memory:");
  await client.execute(slow);
  const order: string[] = [];
  const pieces = 3;
  await Promise.all(
    ["a", "b", "c"].map(async (reader) => {
      for (let n = 0; n < pieces; n++) {
        await client.execute(slow);
        order.push(reader);
      }
    }),
  );
  const rounds = Array.from({ length: pieces }, (_, n) => order.slice(3 * n, 3 * n + 3));
  for (const round of rounds) expect(round.toSorted()).toEqual(["a", "b", "c"]);
  client.close();
});
