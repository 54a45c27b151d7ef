import * as fc from "fast-check";
import { expect, test } from "vitest";
import { type EventCursor, formatCursor, newCursor, parseCursor } from "./event-cursor.ts";

const both = fc.record({ stdout: fc.boolean(), stderr: fc.boolean() });
const cursors: fc.Arbitrary<EventCursor> = fc.record({
  attempt: fc.integer({ min: 1, max: 100_000 }),
  state: fc.constantFrom("new", "running", "lost", "ended"),
  withheld: both,
  truncated: both,
  stdout: fc.integer({ min: 0, max: 2 ** 40 }),
  stderr: fc.integer({ min: 0, max: 2 ** 40 }),
  items: fc.integer({ min: 0, max: 1000 }),
});

test("a cursor can be written as an id and read back, and an id fits into a header", () => {
  fc.assert(
    fc.property(cursors, (cursor) => {
      const id = formatCursor(cursor);
      expect(parseCursor(id)).toEqual(cursor);
      expect(id).toMatch(/^[\w-]+$/);
    }),
  );
});

test("any other text is refused as a cursor, and every offset is a whole number", () => {
  fc.assert(
    fc.property(fc.string(), (text) => {
      const { stdout, stderr } = parseCursor(text) ?? { stdout: 0, stderr: 0 };
      expect(Number.isSafeInteger(stdout + stderr)).toBe(true);
    }),
  );
  for (const text of [
    "",
    "1",
    "1-r-0-0",
    "1-r0-0",
    "1-r0--1-0",
    "1-r0-0-0 ",
    "1-rg-0-0",
    "1-r0-1e3-0",
  ])
    expect(parseCursor(text)).toBeUndefined();
  expect(parseCursor(formatCursor(newCursor(1)))).toEqual(newCursor(1));
});
