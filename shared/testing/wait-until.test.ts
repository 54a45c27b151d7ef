import { expect, test } from "vitest";
import { waitUntil } from "./wait-until.ts";

test("asks until it holds", async () => {
  let asked = 0;
  await waitUntil("the third time", () => ++asked === 3);
  expect(asked).toBe(3);
});

test("says what did not come within the limit, and asks no more", async () => {
  let asked = 0;
  const never = async () => ++asked < 0;
  await expect(waitUntil("the end of the world", never, 50)).rejects.toThrow(
    "waited 50 ms in vain: the end of the world",
  );
  const then = asked;
  await new Promise((resolve) => setTimeout(resolve, 60));
  expect(asked).toBe(then);
});
