import { beforeEach, expect, test } from "vitest";
import type { Deps } from "../deps.ts";
import { recordAgent } from "../store/agents/agents.ts";
import { submitExecution } from "../store/jobs/submit.ts";
import { findExecution } from "../store/jobs/read.ts";
import { ScriptedAgent } from "../testing/scripted-agent.ts";
import { newExecution } from "../testing/temp-store.ts";
import { testDeps } from "../testing/test-deps.ts";
import { store, useStore } from "../testing/use-store.ts";
import { takeNext } from "./take-jobs.ts";

useStore();
let deps: Deps;
let ended: { agentId: string; sessionId: null };
let waits: PromiseWithResolvers<void>;

beforeEach(async () => {
  deps = testDeps(store.db, store.folder, Date.now);
  const { notifier } = deps;
  waits = Promise.withResolvers();
  const subscribe: typeof notifier.subscribe = (topics) => {
    const subscription = notifier.subscribe(topics);
    return {
      ...subscription,
      // However slow the machine is.
      next(_timeoutMs, signal) {
        waits.resolve();
        return subscription.next(60_000, signal);
      },
    };
  };
  deps.notifier = { ...notifier, subscribe };
  const agent = new ScriptedAgent("http://unused", "");
  const status = { ...agent.status(), images: [deps.config.base_image] };
  await recordAgent(store.db, status, "token", Date.now());
  ended = { agentId: agent.id, sessionId: null };
});

async function submit(): Promise<string> {
  const execution = newExecution();
  await submitExecution(store.db, execution, 10);
  deps.notifier.notify("job");
  return execution.id;
}

/** Resolves when another agent that waits for a job is woken. */
async function otherWait(): Promise<void> {
  const other = deps.notifier.subscribe(["job"]);
  await other.next(0, new AbortController().signal);
  other.close();
}

test("a slot that was freed gets the job that waits", async () => {
  const id = await submit();
  const jobs = await takeNext(deps, ended, new AbortController().signal);
  expect(jobs).toMatchObject([{ execution_id: id }]);
});

test("if none waits, it gets the one that comes next, and another agent is woken for the one after it", async () => {
  const taken = takeNext(deps, ended, new AbortController().signal);
  await waits.promise;
  const other = otherWait();
  await submitExecution(store.db, newExecution(), 10);
  await submit();
  expect(await taken).toHaveLength(1);
  await other;
});

test("an agent that hangs up gets none, and another agent is woken", async () => {
  const hungUp = new AbortController();
  const taken = takeNext(deps, ended, hungUp.signal);
  await waits.promise;
  const other = otherWait();
  const { id } = newExecution();
  await submitExecution(store.db, newExecution({ id }), 10);
  deps.notifier.notify("job");
  hungUp.abort();
  expect(await taken).toEqual([]);
  expect((await findExecution(store.db, id))?.status).toBe("queued");
  await other;
});
