import { expect, test } from "vitest";
import { containerProfile } from "../container/container-profile.ts";
import { createTestAgent, type TestAgent, testJob } from "../testing/test-agent.ts";

const gpuJob = (gpus: number) => ({ job_type: { ...testJob().job_type, gpus } });

/** What the engine is told of the GPUs of the n-th container: which, and of what kind. */
function requested(t: TestAgent, n: number): unknown {
  const { HostConfig } = containerProfile(t.specs[n]!);
  if (!("DeviceRequests" in HostConfig)) return undefined;
  return HostConfig.DeviceRequests?.map(({ DeviceIDs, Capabilities }) => [DeviceIDs, Capabilities]);
}
const requestOf = (...ids: string[]): unknown => [[ids, [["gpu"]]]];

test("each GPU is one job's at a time, and the next one's when its container is gone", async () => {
  await using t = await createTestAgent({ slots: 4, gpuIds: ["0", "GPU-b"] });
  t.assumeGoodEngine();
  const first = t.begin(gpuJob(1));
  const second = t.begin(gpuJob(1));
  const [one, two] = [await t.sandbox(0), await t.sandbox(1)];
  expect([requested(t, 0), requested(t, 1)]).toEqual([requestOf("0"), requestOf("GPU-b")]);
  expect(t.deps.gpus.free()).toBe(0);

  const third = t.begin(gpuJob(2));
  const without = t.begin(gpuJob(0));
  const plain = await t.sandbox(2);
  expect(requested(t, 2)).toBeUndefined();

  two.finish();
  await second.ended;
  expect(t.specs).toHaveLength(3);
  one.finish();
  await first.ended;
  const both = await t.sandbox(3);
  expect(requested(t, 3)).toEqual(requestOf("GPU-b", "0"));
  both.finish();
  plain.finish();
  await Promise.all([third.ended, without.ended]);
  await expect.poll(() => t.deps.gpus.free(), { timeout: 30_000 }).toBe(2);
});

test("a job that asks for more GPUs than there are fails in words, and keeps none", async () => {
  await using t = await createTestAgent({ gpuIds: ["0"] });
  t.assumeGoodEngine();
  await t.begin(gpuJob(2)).ended;
  const { json } = await t.api.request("/result");
  expect(JSON.stringify(json)).toContain("asks for 2 GPUs, and the agent has 1 (agent_gpus)");
  expect(t.specs).toEqual([]);
  expect(t.deps.gpus.free()).toBe(1);
});
