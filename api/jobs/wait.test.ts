import { beforeEach, expect, test } from "vitest";
import type { Deps } from "../deps.ts";
import { recordResult } from "../agents/lease-posts.ts";
import { claimNext } from "../store/jobs/claim.ts";
import { submitExecution } from "../store/jobs/submit.ts";
import { success } from "../testing/scripted-agent.ts";
import { newExecution, offers } from "../testing/temp-store.ts";
import { store, useStore } from "../testing/use-store.ts";
import { clientOf, testDeps } from "../testing/test-deps.ts";
import { waitForSync } from "./wait.ts";

useStore();
let deps: Deps;
beforeEach(() => {
  deps = testDeps(store.db, store.folder, () => 10);
});

test("a synchronous job that ends just before its cancellation is answered with its result", async () => {
  const execution = newExecution({ mode: "sync" });
  await submitExecution(store.db, execution, 10);
  const { client } = store.db;
  const execute = client.execute.bind(client);
  let isEnded = false;
  // The job ends after the wait has found no agent, and before it cancels the job.
  client.execute = async (statement: Parameters<typeof execute>[0]) => {
    const result = await execute(statement);
    const text = typeof statement === "string" ? statement : (statement as { sql: string }).sql;
    if (!isEnded && text.includes('from "agents"')) {
      isEnded = true;
      const terms = { agentId: "a", expiresAt: 1_000_000, now: 10 };
      const [row] = await claimNext(store.db, terms, { slots: 1, gpus: 0 }, offers);
      await recordResult(deps, row!, row!.leaseId!, success);
    }
    return result;
  };
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
