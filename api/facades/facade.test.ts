import { describe, expect, test } from "vitest";
import { exceptionOf } from "./facade.ts";

describe("what ended a cell", () => {
  const trace = 'Traceback (most recent call last):\n  File "<cell 1>"\n';
  const failed = (type: "value_error" | "runtime_error", message: string) => {
    return { status: "failed", error: { type, message, phase: "execution" } } as const;
  };

  test("is nothing if it ended well", () => {
    expect(exceptionOf({ status: "succeeded", error: null }, "")).toBeUndefined();
  });

  test.each([
    ["ValueError: a: b\nc", "ValueError", "a: b\nc"],
    ["KeyboardInterrupt", "KeyboardInterrupt", ""],
    ["json.decoder.JSONDecodeError: x", "JSONDecodeError", "x"],
    ["Tool.forward.<locals>.FinalAnswer: safe:1", "FinalAnswer", "safe:1"],
  ])("%j is an exception with a name and a value", (message, name, value) => {
    const stderr = `warning\n${trace}${message}\n`;
    expect(exceptionOf(failed("value_error", message), stderr)).toEqual({
      name,
      value,
      traceback: `${trace}${message}\n`,
    });
  });

  test("has the type of the error as its name if it is no exception", () => {
    const ended = failed("runtime_error", "The code exited with status 3.");
    expect(exceptionOf(ended, "said\n")).toEqual({
      name: "runtime_error",
      value: "The code exited with status 3.",
      traceback: "said\n",
    });
  });
});
