import { expect, test } from "vitest";
import { z } from "zod";
import { fieldErrors } from "./validation.ts";

const Schema = z.strictObject({ code: z.string(), numbers: z.array(z.int()) });
const faultsOf = (value: unknown) => fieldErrors(Schema.safeParse(value).error!);

test("of a hundred thousand fields that no request has, a hundred are named", () => {
  const unknown = Object.fromEntries(Array.from({ length: 100_000 }, (_, i) => [`field${i}`, i]));
  const faults = faultsOf({ code: "", numbers: [], ...unknown });
  expect(faults).toHaveLength(100);
  expect(faults[0]).toEqual({ path: "field0", message: "is not a field of this request" });
});

test("of a hundred thousand bad values, a hundred are named, other fields' first", () => {
  const faults = faultsOf({ numbers: Array.from({ length: 100_000 }, () => "") });
  expect(faults).toHaveLength(100);
  expect(faults[0]).toEqual({ path: "code", message: "is required" });
});

test("a field's name is cut where it is long", () => {
  const [fault] = faultsOf({ code: "", numbers: [], ["x".repeat(1_000_000)]: 1 });
  expect(fault?.path).toBe("x".repeat(256));
});
