import { expect, test } from "vitest";
import { UsageError } from "./exit.ts";
import { chooseByEnd } from "./find-id.ts";

const ids = ["01a2-aaaa1111", "01a2-bbbb1111", "01a2-cccc2222"];

test("the end of one id chooses it", () => {
  expect(chooseByEnd(ids, "2222", "job")).toBe("01a2-cccc2222");
  expect(chooseByEnd(ids, "b1111", "job")).toBe("01a2-bbbb1111");
});

test("the end of several ids is refused, and so is that of none", () => {
  expect(() => chooseByEnd(ids, "1111", "job")).toThrow(
    new UsageError("the ids of 2 jobs end with 1111: give more characters"),
  );
  expect(() => chooseByEnd(ids, "01a2", "session")).toThrow(
    /^none of the newest 100 sessions has an id/,
  );
});
