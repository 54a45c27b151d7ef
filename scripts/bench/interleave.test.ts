import { expect, test } from "vitest";
import { interleave } from "./interleave.ts";

test("sides take turns, and a warm-up leaves no sample", async () => {
  const calls: string[] = [];
  const side = (name: string, perRound?: number) => ({
    name,
    once: async () => calls.push(name),
    ...(perRound !== undefined && { perRound }),
  });
  const series = await interleave("ms", [side("a", 2), side("b")], { warmUp: 1, rounds: 2 });
  expect(calls.join("")).toBe("aabaabaab");
  expect(series).toEqual([
    { name: "a", unit: "ms", samples: [4, 5, 7, 8] },
    { name: "b", unit: "ms", samples: [6, 9] },
  ]);
});
