import { expect, test } from "vitest";
import { letOthersRun, takeTurn } from "./let-others-run.ts";

/** Calls back in each turn of the event loop. */
function countTurns() {
  let turn = 0;
  let next = setImmediate(function count() {
    turn++;
    next = setImmediate(count);
  });
  return { now: () => turn, [Symbol.dispose]: () => clearImmediate(next) };
}

test.each([
  ["work that pauses", letOthersRun],
  ["work that waits for its data", takeTurn],
])("a turn of the event loop has one piece of all %s", async (_, pause) => {
  using turns = countTurns();
  const pieces: number[] = [];
  const work = async (): Promise<void> => {
    for (let n = 0; n < 20; n++) {
      await pause();
      pieces.push(turns.now());
    }
  };
  await pause();
  await Promise.all(Array.from({ length: 10 }, work));
  // The first and the last to work are alone.
  const others = pieces.slice(10, -20);
  expect(new Set(others).size).toBe(others.length);
});

test("lone work that waits for its data does not pause", async () => {
  using turns = countTurns();
  await letOthersRun();
  const start = turns.now();
  await takeTurn();
  expect(turns.now()).toBe(start);
});
