import * as fc from "fast-check";
import { expect, test } from "vitest";
import { describeError, formatLogLine, type LogRecordLike } from "./log-line.ts";

const record = (message: unknown[], properties: Record<string, unknown> = {}): LogRecordLike => ({
  timestamp: Date.UTC(2026, 10, 21, 9, 30),
  level: "warning",
  category: ["airlock", "api"],
  message,
  properties,
});

test("a line holds time, correlation id, level, logger and message", () => {
  expect(formatLogLine(record(["lease ", "of ", 7, " expired"], { correlationId: "req-1" }))).toBe(
    "2026-11-21T09:30:00.000Z [req-1] WARNING airlock.api lease of 7 expired\n",
  );
});

test("a line about a request or job of a W3C trace ends with the id of the trace", () => {
  const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
  expect(formatLogLine(record(["GET /jobs 200"], { traceparent }))).toMatch(
    / GET \/jobs 200, trace 4bf92f3577b34da6a3ce929d0e0e4736\n$/,
  );
});

test("without a correlation id, the line shows a dash in brackets", () => {
  expect(formatLogLine(record(["up"]))).toContain(" [-] WARNING ");
});

test("values are shown as text: errors with their causes, the rest as JSON", () => {
  const error = new Error("cannot open", { cause: new Error("EACCES") });
  const line = formatLogLine(record([error, " ", { a: [1] }, " ", null, " ", undefined]));
  expect(line).toContain('cannot open: EACCES {"a":[1]} null undefined\n');
});

test("control characters are escaped, so that no value can forge a second line", () => {
  const forged = "x\n2026 [admin] INFO airlock.api all is well\r\u001b[2J\u0000\u0085\u009b\u2028";
  const line = formatLogLine(record([forged], { correlationId: "a\nb" }));
  expect(line).toContain("[a\\x0ab]");
  expect(line).toContain("x\\x0a2026 [admin]");
  expect(line).toContain("\\x0d\\x1b[2J\\x00\\x85\\x9b\\u2028");
});

test("any value is logged as one line without control characters", () => {
  const anything = fc.oneof(fc.string({ unit: "binary" }), fc.anything({ withBigInt: true }));
  fc.assert(
    fc.property(fc.array(anything), anything, (message, correlationId) => {
      const line = formatLogLine(record(message, { correlationId }));
      expect(line.endsWith("\n")).toBe(true);
      expect(line.slice(0, -1)).not.toMatch(/[\p{Cc}\u2028\u2029]/u);
    }),
  );
});

test("an error without a message is shown by its name, and a thrown value that is not an error as text", () => {
  expect(describeError(new RangeError(""))).toBe("RangeError");
  expect(describeError("gone")).toBe("gone");
  expect(describeError(new Error("a", { cause: "b" }))).toBe("a: b");
  const cause = new Error("no such image ");
  expect(describeError(new Error("engine: no such image ", { cause }))).toBe(
    "engine: no such image",
  );
});
