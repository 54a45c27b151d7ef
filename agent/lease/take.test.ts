import { createHash } from "node:crypto";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { tempFolder } from "../../shared/testing/temp-folder.ts";
import { afterEach, beforeEach, expect, it } from "vitest";
import { MISSING_MS } from "./poll.ts";
import {
  createTestAgent,
  type RunningAgent,
  type TestAgent,
  testJob,
} from "../testing/test-agent.ts";

let t: TestAgent;
let agent: RunningAgent;

beforeEach(async () => {
  t = await createTestAgent({ slots: 1 });
  agent = t.run();
  await t.api.request("/poll", 2);
});
afterEach(() => t[Symbol.asyncDispose]());

/** Fills the only slot and has the answer to its result bring `next`. */
async function fillAndAnswerWith(next = testJob()) {
  t.api.offer(testJob());
  t.api.answer("/result", { status: 200, body: { jobs: [next] } });
  const sandbox = await t.sandbox(0);
  await sandbox.running;
  const poll = await t.api.request("/poll", 3);
  expect(poll.json).toMatchObject({ free_slots: 0 });
  sandbox.finish();
  return { next, poll };
}

it("asks for the next job with the result while all slots are in use, and runs it at once", async () => {
  const { next, poll } = await fillAndAnswerWith();
  const { headers } = await t.api.request("/result", 1);
  expect(headers["x-airlock-take"]).toBe("1");
  const { job } = await (await t.sandbox(1)).running;
  expect(job.code).toBe(next.code);
  expect(t.deps.leases.ids()).toEqual([next.lease_id]);
  expect(poll.isHungUp()).toBe(false);
  (await t.sandbox(1)).finish();
  expect((await t.api.request("/result", 2)).path).toContain(next.lease_id);
  expect(t.api.count("/poll")).toBe(3);
});

it("polls again when such a job takes long, so that it learns of a cancellation", async () => {
  const { next, poll } = await fillAndAnswerWith();
  await (
    await t.sandbox(1)
  ).running;
  await t.clock.sleeping(MISSING_MS);
  t.clock.advance(MISSING_MS);
  expect((await t.api.request("/poll", 4)).json).toMatchObject({ leases: [next.lease_id] });
  await poll.hungUp;
});

it("hands a job back instead of running it a second time under the same lease", async () => {
  const { next } = await fillAndAnswerWith();
  const sandbox = await t.sandbox(1);
  await sandbox.running;
  sandbox.finish();
  await t.api.request("/poll", 4);
  t.api.answer("/release", { status: 409 });
  t.api.offer(next);
  expect((await t.api.request("/release")).path).toContain(next.lease_id);
  t.api.offer(testJob());
  await (
    await t.sandbox(2)
  ).running;
  expect(t.specs).toHaveLength(3);
});

it("does not run a job twice that a poll or another result has brought", async () => {
  await t[Symbol.asyncDispose]();
  t = await createTestAgent({ slots: 2 });
  t.run();
  const next = { ...testJob(), code: "print('twice?')" };
  const brings = { status: 200, body: { jobs: [next] } };
  t.api.answer("/result", brings, brings);
  t.api.offer(testJob(), testJob());
  const [first, second] = [await t.sandbox(0), await t.sandbox(1)];
  await Promise.all([first.running, second.running]);
  first.finish();
  await (
    await t.sandbox(2)
  ).running;
  second.finish();
  await t.api.request("/result", 2);
  await t.deps.changes.waitUntil(() => t.deps.leases.free() === 1);
  t.api.offer(testJob());
  expect((await (await t.sandbox(3)).running).job.code).not.toBe(next.code);
  expect(t.deps.leases.ids()).toHaveLength(2);
});

it("asks for no job when it stops", async () => {
  t.api.offer(testJob());
  const sandbox = await t.sandbox(0);
  await sandbox.running;
  agent.stop();
  sandbox.finish();
  expect((await t.api.request("/result")).headers).not.toHaveProperty("x-airlock-take");
  await agent.ended;
});

function oneFile() {
  const path = join(tempFolder(), "a");
  writeFileSync(path, "x");
  const sha256 = createHash("sha256").update("x").digest("hex");
  return [{ name: "a", sizeBytes: 1, sha256, path }];
}

it("tells the API of a slot that an upload leaves, which only the agent knows, though another is free", async () => {
  await t[Symbol.asyncDispose]();
  t = await createTestAgent({ slots: 2 });
  t.run();
  await t.api.request("/poll", 2);
  t.api.answer("/artifacts/a", "silence");
  t.api.offer(testJob());
  const sandbox = await t.sandbox(0);
  await sandbox.running;
  const poll = await t.api.request("/poll", 3);
  expect(poll.json).toMatchObject({ free_slots: 1 });
  sandbox.finish({ artifacts: oneFile() });
  expect((await t.api.request("/poll", 4)).json).toMatchObject({ free_slots: 2 });
  await poll.hungUp;
});

it("gives the slot to another job while files are uploaded, to as many as it has slots", async () => {
  const artifacts = oneFile();
  t.api.answer("/artifacts/a", "silence", "silence");
  t.api.offer(testJob());
  (await t.sandbox(0)).finish({ artifacts });
  await t.api.request("/artifacts/a", 1);
  await t.deps.changes.waitUntil(() => t.deps.leases.free() === 1);
  t.api.offer(testJob());
  const second = await t.sandbox(1);
  await second.running;
  expect(t.deps.leases.free()).toBe(0);
  expect(t.deps.leases.ids()).toHaveLength(2);
  second.finish({ artifacts });
  await t.api.request("/artifacts/a", 2);
  expect(t.deps.leases.free()).toBe(0);
});

it("asks for no job while a poll with a free slot is pending", async () => {
  await t[Symbol.asyncDispose]();
  t = await createTestAgent({ slots: 2 });
  t.run();
  t.api.offer(testJob());
  const sandbox = await t.sandbox(0);
  await sandbox.running;
  sandbox.finish();
  expect((await t.api.request("/result")).headers).not.toHaveProperty("x-airlock-take");
});
