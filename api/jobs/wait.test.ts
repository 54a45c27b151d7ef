import { beforeEach, describe, expect, test } from "vitest";
import { writeJson } from "../../shared/json.ts";
import type { ResultReport } from "../../shared/wire/leases.ts";
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
import { toSyncResult } from "./read.ts";
import { type ExecutionRow, findExecution } from "./sql.ts";
import { cancel, keepFollowed, waitForSync, waitForWatched } from "./wait.ts";

useStore();

const failure = { type: "runtime_error", message: "no", phase: "execution" } as const;
const item = { number: 1, main: true, data: { "text/plain": "1" }, stdout_at: 0, stderr_at: 0 };

describe("wait", () => {
  let deps: Deps;
  beforeEach(() => {
    deps = testDeps(store.db, store.folder, () => 10);
  });

  test("a synchronous job that ends just before its cancellation is answered with its result", async () => {
    const id = await storeJob(store.db, { mode: "sync" });
    // The job ends after the wait has found no agent, and before it cancels the job.
    meanwhile('from "agent_changes"', async () => {
      const row = await leaseJob(store.db, { now: 10, ttlMs: 1_000_000 });
      await recordResult(deps, row, row.leaseId, success);
    });
    const next = () => Promise.resolve({ isWoken: false, forJob: false });
    deps.notifier.subscribe = () => ({ next, wants() {}, settle() {}, close() {} });
    let clock = 10;
    deps.now = () => (clock += 1000);
    const { signal } = new AbortController();
    const { execution: ended } = await waitForSync(clientOf(deps), id, false, signal);
    expect(ended).toMatchObject({ status: "succeeded" });
  });

  test.each([
    ["nothing", {}],
    ["output", { stdout_base64: btoa("a\xff"), stderr_base64: btoa("b"), stdout_truncated: true }],
    ["JSON", { output_json: '{"n": 1.0, "more": [18014398509481985]}' }],
    ["a warning and a compiler", { warnings: ["slow"], compile: { exit_code: 0, output: "ok" } }],
    ["much output", { stdout_base64: btoa("x".repeat(300_000)) }],
    ["an error", { status: "failed", exit_code: 1, error: failure }],
    ["items", { items: [item] }],
  ] as const)(
    "a result with %s that is handed to the request that waits is answered like one that is read",
    async (what, result) => {
      const results = what === "items" ? "all" : undefined;
      const job = await leasedJob(store.db, { mode: "sync", results, jobType: "default" });
      const client = clientOf(deps);
      const wakes = deps.notifier.subscribe([`execution:${job.id}`]);
      const { signal } = new AbortController();
      const watched = { id: job.id, startBy: Infinity, wakes };
      const waiting = waitForWatched(client, watched, false, signal);
      await recordResult(deps, job, job.leaseId, { ...success, ...result } as ResultReport);
      const [handed, read] = await Promise.all([
        waiting,
        waitForSync(client, job.id, false, signal),
      ]);
      const isRead = "artifacts" in handed;
      expect(isRead).toBe(["much output", "items"].includes(what));
      expect(writeJson(toSyncResult(handed))).toBe(writeJson(toSyncResult(read)));
    },
  );

  test("a watched job that nobody takes has ended once its queue_timeout is over", async () => {
    const id = await storeJob(store.db, { startBy: 1000 });
    let clock = 900;
    deps.now = () => clock;
    const next = async (waitMs: number) => ((clock += waitMs), { isWoken: false, forJob: false });
    const wakes = { ...deps.notifier.subscribe([]), next };
    const { signal } = new AbortController();
    const { execution } = await waitForWatched(
      clientOf(deps),
      { id, startBy: 1000, wakes },
      false,
      signal,
    );
    expect([execution.status, clock]).toEqual(["timeout", 1000]);
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
