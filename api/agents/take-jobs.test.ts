import { beforeEach, describe, expect, test } from "vitest";
import type { Deps, Subscription } from "../deps.ts";
import { recordAgent } from "../store/agents/agents.ts";
import { submitExecution } from "../store/jobs/submit.ts";
import { findExecution } from "../store/jobs/read.ts";
import { ScriptedAgent, success } from "../testing/scripted-agent.ts";
import { newExecution } from "../testing/temp-store.ts";
import { testDeps } from "../testing/test-deps.ts";
import { newCall, readySession, runningCall } from "../testing/session-store.ts";
import { store, useStore } from "../testing/use-store.ts";
import type { ExecutionRow } from "../store/jobs/row.ts";
import { wakeForCall } from "../sessions/tell-session.ts";
import { recordResult } from "./lease-posts.ts";
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

describe("after a call", () => {
  let polls: Subscription;
  let call: ExecutionRow;
  let isPollWoken: boolean;
  beforeEach(async () => {
    const { id } = await readySession(store.db);
    const running = await runningCall(store.db, id);
    call = running;
    // The lease of the session begins at 1.
    deps = { ...deps, now: () => 1 };
    await recordResult(deps, call, running.leaseId, success);
    isPollWoken = false;
    polls = deps.notifier.subscribe([`agent:${call.agentId}`]);
    void polls.next(60_000, new AbortController().signal).then(() => (isPollWoken = true));
    waits = Promise.withResolvers();
  });

  /** As a client does it. */
  async function submitCall(): Promise<string> {
    const id = await newCall(store.db, call.sessionId!);
    wakeForCall(deps, { id: call.sessionId!, agentId: call.agentId });
    return id;
  }

  test("the answer waits for the next call of the session, and the agent's poll stays", async () => {
    const taken = takeNext(deps, call, new AbortController().signal);
    await waits.promise;
    const id = await submitCall();
    expect(await taken).toMatchObject([{ execution_id: id }]);
    expect(isPollWoken).toBe(false);
  });

  test("if the agent hangs up, its poll gets the call", async () => {
    const hungUp = new AbortController();
    const taken = takeNext(deps, call, hungUp.signal);
    await waits.promise;
    hungUp.abort();
    await submitCall();
    expect(await taken).toEqual([]);
    await polls.next(0, new AbortController().signal);
    expect(isPollWoken).toBe(true);
  });
});
