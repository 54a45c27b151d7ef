import { beforeEach, describe, expect, test } from "vitest";
import { sweepLeases } from "../agents/poll.ts";
import { recordLog, recordResult, releaseLease } from "../agents/posts.ts";
import type { Deps, Topic } from "../deps.ts";
import { interrupt } from "../sessions/sessions.ts";
import type { DurableClient } from "../store/database.ts";
import { removeExecution } from "../store/retention.ts";
import { success } from "../testing/scripted-agent.ts";
import { readySession, runningCall } from "../testing/session-store.ts";
import { sqlOf } from "../testing/statements.ts";
import {
  by,
  clientOf,
  findLeasedJob,
  handleOf,
  leasedJob,
  leaseJob,
  storeJob,
  testDeps,
} from "../testing/temp-store.ts";
import { store, useStore } from "../testing/use-store.ts";
import { remove } from "./executions.ts";
import { type ExecutionRow, findExecution } from "./sql.ts";
import { cancel, keepFollowed, waitForSync } from "./wait.ts";

useStore();

describe("wait", () => {
  let deps: Deps;
  beforeEach(() => {
    deps = testDeps(store.db, store.folder, () => 10);
  });

  test("a synchronous job that ends just before its cancellation is answered with its result", async () => {
    const id = await storeJob(store.db, { mode: "sync" });
    // The job ends after the wait has found no agent, and before it cancels the job.
    meanwhile('from "agents"', async () => {
      const row = await leaseJob(store.db, { now: 10, ttlMs: 1_000_000 });
      await recordResult(deps, row, row.leaseId, success);
    });
    const next = () => Promise.resolve({ forJob: false });
    deps.notifier.subscribe = () => ({ next, passOn() {}, close() {} });
    let clock = 10;
    deps.now = () => (clock += 1000);
    const { signal } = new AbortController();
    const { execution: ended } = await waitForSync(clientOf(deps), id, false, signal);
    expect(ended).toMatchObject({ status: "succeeded" });
  });

  test("interrupting a call that has just ended names no call, and is no error", async () => {
    const { id } = await readySession(store.db);
    const call = await runningCall(store.db, id);
    meanwhile('"cancel_requested"', () => recordResult(deps, call, call.leaseId, success));
    expect(await interrupt(clientOf(deps), id)).toBeNull();
  });

  test("an execution that another request removes just before is 404", async () => {
    const id = await storeJob(store.db);
    await cancel(clientOf(deps), id);
    meanwhile('from "executions"', () => removeExecution(handleOf(store.db), id, 100, by()));
    await expect(remove(clientOf(deps), id, by())).rejects.toThrow(
      `Execution ${id} does not exist`,
    );
  });

  /** Does something once, between a statement and the next one. */
  function meanwhile(text: string, act: () => Promise<unknown>): void {
    const client = store.db.client as DurableClient;
    const execute = client.execute.bind(client);
    const { kept } = client;
    const then = async <R>(done: Promise<R>, sql: string): Promise<R> => {
      await done;
      if (sql.includes(text)) {
        Object.assign(client, { execute, kept });
        await act();
      }
      return done;
    };
    client.execute = (statement: Parameters<typeof execute>[0]) =>
      then(execute(statement), sqlOf(statement));
    client.kept = (read) => then(kept(read), read.statement.sql);
  }
});

describe("followed", () => {
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
        await recordLog(deps, await findLeasedJob(store.db, id), { parts });
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
    const id = await storeJob(store.db);
    await keepFollowed(clientOf(deps), (await findExecution(store.db, id))!);
    await cancel(clientOf(deps), id);
    expect(told).toContain(`output:${id}`);
  });
});
