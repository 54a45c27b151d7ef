import { expect, it } from "vitest";
import { countErrors } from "./count-errors.ts";
import type { Engine } from "../engine/engine.ts";
import { EngineError, type EngineErrorCode } from "../sandbox/errors.ts";

const signal = new AbortController().signal;
const fail = (code: EngineErrorCode) => Promise.reject(new EngineError(code, "it failed"));
const isOver = new DOMException("not within 5000 ms", "TimeoutError");

/** An engine of which only these calls are made. */
function counting(calls: Partial<Engine>) {
  return countErrors(calls as Engine);
}

it("counts failed calls by call and kind, and passes on answers and errors", async () => {
  const { engine, errors } = counting({
    create: () => fail("unavailable"),
    start: (id) => (id === "good" ? Promise.resolve() : fail("other")),
    list: (name, value) =>
      Promise.resolve([{ id: name, name, isRunning: true, labels: { value } }]),
  });
  expect(errors()).toEqual([]);
  await expect(engine.create({} as never, signal)).rejects.toThrow("it failed");
  await expect(engine.create({} as never, signal)).rejects.toThrow("it failed");
  await expect(engine.start("bad", signal)).rejects.toThrow("it failed");
  await engine.start("good", signal);
  expect(await engine.list("a", "b", signal)).toMatchObject([{ id: "a", labels: { value: "b" } }]);
  expect(errors()).toEqual([
    { operation: "create", kind: "unavailable", count: 2 },
    { operation: "start", kind: "other", count: 1 },
  ]);
});

it("counts an engine that does not answer in time, but not a call that was given up", async () => {
  const { engine, errors } = counting({
    describe: () => Promise.reject(isOver),
    wait: () => Promise.reject(isOver),
    remove: () => Promise.reject(new Error("cancelled")),
  });
  await expect(engine.describe(signal)).rejects.toThrow("not within");
  await expect(engine.wait("id", signal)).rejects.toThrow("not within");
  await expect(engine.remove("id", signal)).rejects.toThrow("cancelled");
  expect(errors()).toEqual([{ operation: "describe", kind: "timeout", count: 1 }]);
});
