import { beforeEach, expect, test } from "vitest";
import { recordLog, recordResult, releaseLease } from "../agents/lease-posts.ts";
import { sweepLeases } from "../agents/poll.ts";
import type { Deps, Topic } from "../deps.ts";
import type { ExecutionRow } from "../store/jobs/row.ts";
import { findExecution } from "../store/jobs/read.ts";
import { submitExecution } from "../store/jobs/submit.ts";
import { success } from "../testing/scripted-agent.ts";
import { leasedJob, newExecution } from "../testing/temp-store.ts";
import { store, useStore } from "../testing/use-store.ts";
import { clientOf, testDeps } from "../testing/test-deps.ts";
import { cancel } from "./wait.ts";
import { keepFollowed } from "./followed.ts";

useStore();
let deps: Deps;
let told: Topic[];
let clock: number;
beforeEach(() => {
  told = [];
  clock = 10;
  deps = testDeps(store.db, store.folder, () => clock);
  const notify = (topic: Topic): boolean => told.push(topic) > 0;
  deps = { ...deps, notifier: { ...deps.notifier, notify } };
});

const error = { type: "docker_error", message: "", phase: "startup" } as const;
const changes: [what: string, change: (job: ExecutionRow) => Promise<unknown>][] = [
  [
    "output",
    async ({ id }) => {
      const parts = [{ stream: "stdout" as const, offset: 0, data_base64: btoa("text") }];
      await recordLog(deps, (await findExecution(store.db, id))!, { parts });
    },
  ],
  ["a result", (job) => recordResult(deps, job, job.leaseId!, success)],
  [
    "a lease that is given back",
    (job) => releaseLease(deps, job.leaseId!, { error, agent_stops: false }),
  ],
  ["a lease that expires", () => ((clock = 1000), sweepLeases(deps))],
];

test.each(changes)("%s sends no wake-up to followers if there are none", async (_, change) => {
  await change(await leasedJob(store.db));
  expect(told.filter((topic) => topic.startsWith("output:"))).toEqual([]);
});

test.each(changes)(
  "%s wakes the followers, also those that came just before",
  async (_, change) => {
    // This row was read before the followers came.
    const job = await leasedJob(store.db);
    await keepFollowed(clientOf(deps), job);
    await change(job);
    expect(told.filter((topic) => topic.startsWith("output:"))).toEqual([`output:${job.id}`]);
  },
);

test("the cancellation of a queued job wakes its followers", async () => {
  const { id } = newExecution();
  await submitExecution(store.db, { ...newExecution(), id }, 10);
  await keepFollowed(clientOf(deps), (await findExecution(store.db, id))!);
  await cancel(clientOf(deps), id);
  expect(told).toContain(`output:${id}`);
});
