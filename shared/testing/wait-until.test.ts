import { expect, test } from "vitest";
import { waitUntil } from "./wait-until.ts";

test("checks until the condition is true", async () => {
  let asked = 0;
  await waitUntil("the third time", () => ++asked === 3);
  expect(asked).toBe(3);
});

test("names the condition that was not true within the limit, and stops checking", async () => {
  let asked = 0;
  const never = async () => ++asked < 0;
  await expect(waitUntil("the end of the world", never, 50)).rejects.toThrow(
    "waited 50 ms in vain: the end of the world",
  );
  const then = asked;
  await new Promise((resolve) => setTimeout(resolve, 60));
  expect(asked).toBe(then);
});
