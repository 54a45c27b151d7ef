import { beforeEach, expect, test } from "vitest";
import type { Deps } from "../deps.ts";
import { recordResult } from "../agents/lease-posts.ts";
import { claimNext } from "../store/jobs/claim.ts";
import { submitExecution } from "../store/jobs/submit.ts";
import { success } from "../testing/scripted-agent.ts";
import { by, handleOf, newExecution, offers } from "../testing/temp-store.ts";
import { store, useStore } from "../testing/use-store.ts";
import { clientOf, testDeps } from "../testing/test-deps.ts";
import { interrupt } from "../sessions/change-session.ts";
import { removeExecution } from "../store/retention.ts";
import { readySession, runningCall } from "../testing/session-store.ts";
import { remove } from "./remove.ts";
import { cancel, waitForSync } from "./wait.ts";

useStore();
let deps: Deps;
beforeEach(() => {
  deps = testDeps(store.db, store.folder, () => 10);
});

test("a synchronous job that ends just before its cancellation is answered with its result", async () => {
  const execution = newExecution({ mode: "sync" });
  await submitExecution(store.db, execution, 10);
  // The job ends after the wait has found no agent, and before it cancels the job.
  meanwhile('from "agents"', async () => {
    const terms = { agentId: "a", expiresAt: 1_000_000, now: 10 };
    const [row] = await claimNext(store.db, terms, { slots: 1, gpus: 0 }, offers);
    await recordResult(deps, row!, row!.leaseId!, success);
  });
  deps.notifier.subscribe = () => ({ next: () => Promise.resolve(), passOn() {}, close() {} });
  let clock = 10;
  deps.now = () => (clock += 1000);
  const { execution: ended } = await waitForSync(
    clientOf(deps),
    execution.id,
    false,
    new AbortController().signal,
  );
  expect(ended).toMatchObject({ status: "succeeded" });
});

test("interrupting a call that has just ended names no call, and is no error", async () => {
  const { id } = await readySession(store.db);
  const call = await runningCall(store.db, id);
  meanwhile('"cancel_requested"', () => recordResult(deps, call, call.leaseId, success));
  expect(await interrupt(clientOf(deps), id)).toBeNull();
});

test("an execution that another request removes just before is 404", async () => {
  const { id } = newExecution();
  await submitExecution(store.db, newExecution({ id }), 10);
  await cancel(clientOf(deps), id);
  meanwhile('from "executions"', () => removeExecution(handleOf(store.db), id, 100, by()));
  await expect(remove(clientOf(deps), id, by())).rejects.toThrow(`Execution ${id} does not exist`);
});

/** Does something once, between a statement and the next one. */
function meanwhile(text: string, act: () => Promise<unknown>): void {
  const { client } = store.db;
  const execute = client.execute.bind(client);
  client.execute = async (statement: Parameters<typeof execute>[0]) => {
    const done = await execute(statement);
    const { sql } = typeof statement === "string" ? { sql: statement } : statement;
    if (sql.includes(text)) {
      client.execute = execute;
      await act();
    }
    return done;
  };
}
