import { afterEach, beforeEach, expect, test } from "vitest";
import { createTestAgent, type TestAgent, testJob } from "./test-agent.ts";

let t: TestAgent;
beforeEach(async () => {
  t = await createTestAgent();
});
afterEach(() => t[Symbol.asyncDispose]());

test("an agent that does not take a job from an answer that came too late gets it with the next", async () => {
  t.run();
  await t.api.request("/poll", 2);
  const { lease_ttl_s } = t.api.intervals;
  t.clock.advance(lease_ttl_s * 1000);
  const job = testJob();
  t.api.offer(job);
  const sandbox = await t.sandbox(0);
  await sandbox.running;
  sandbox.finish();
  expect((await t.api.request("/result")).path).toContain(job.lease_id);
});
