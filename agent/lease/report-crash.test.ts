import { randomUUID } from "node:crypto";
import { setImmediate } from "node:timers/promises";
import { afterEach, beforeEach, expect, it } from "vitest";
import { createTestAgent, type TestAgent } from "../testing/test-agent.ts";
import { createCrashReporter } from "./report-crash.ts";

let t: TestAgent;
beforeEach(async () => {
  reported = 0;
  t = await createTestAgent();
});
afterEach(() => t[Symbol.asyncDispose]());

let reported = 0;
const reporter = () =>
  createCrashReporter(
    { ...t.deps, onReported: () => (reported += 1) },
    new AbortController().signal,
  );

it("reports each crash once, and says when the API has it", async () => {
  const crashed = randomUUID();
  const report = reporter();
  t.api.answer("/leave", { status: 503 }, "cut");
  expect(report(crashed)).toBe(false);
  while (!report(crashed)) await setImmediate();
  expect(t.api.count("/leave")).toBe(3);
  expect(reported).toBe(1);
  expect((await t.api.request("/leave", 3)).json).toEqual({ agent_id: crashed, crashed: true });
});

it("gives up if the API rejects the report", async () => {
  const report = reporter();
  const crashed = randomUUID();
  t.api.answer("/leave", { status: 403 });
  while (!report(crashed)) await setImmediate();
  expect(t.api.count("/leave")).toBe(1);
});
