import { setImmediate as nextTick } from "node:timers/promises";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import type { PollRequest } from "../../shared/wire/agent/lease.ts";
import type { Deps } from "../deps.ts";
import { addJoinCode, askForRotation, exchangeCode } from "../store/agents/agent-tokens.ts";
import { JobTypeDefinition } from "../../shared/wire/job-type.ts";
import { findExecution } from "../store/jobs/read.ts";
import { setLimits } from "../store/tenants.ts";
import { limitTenant } from "../keys/tenants.ts";
import { leave } from "./leave.ts";
import { recordResult } from "./lease-posts.ts";
import { poll } from "./poll.ts";
import { submit } from "../jobs/submit.ts";
import { ScriptedAgent, success } from "../testing/scripted-agent.ts";
import { by, noLimits, openTempStore, type TempStore } from "../testing/temp-store.ts";
import { clientOf, testDeps } from "../testing/test-deps.ts";

const tokenHash = "token";
const origin = { mode: "async", correlationId: "c", clientIp: "192.0.2.1" } as const;

let store: TempStore;
let deps: Deps;
let asked: string[];
let over: AbortController;
beforeEach(async () => {
  // Even on a slow machine, no poll reaches its backstop.
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
  store = await openTempStore();
  deps = testDeps(store.db, store.folder, Date.now);
  asked = [];
  over = new AbortController();
  const { client } = store.db;
  const execute = client.execute.bind(client);
  client.execute = (statement: Parameters<typeof execute>[0]) => {
    asked.push(typeof statement === "string" ? statement : (statement as { sql: string }).sql);
    return execute(statement);
  };
});
afterEach(async () => {
  over.abort();
  await quiet();
  store.close();
  vi.useRealTimers();
});

/** Resolves when all work is done: a local database answers within a tick of the event loop. */
async function quiet(): Promise<void> {
  let idleTicks = 0;
  for (let before = asked.length; idleTicks < 20; before = asked.length) {
    await nextTick();
    idleTicks = asked.length === before ? idleTicks + 1 : 0;
  }
}

type Parked = { reply: ReturnType<typeof poll> };

/** Starts the poll of another agent, and resolves when it has found nothing and waits. */
async function park(changes: Partial<PollRequest> = {}, signal = over.signal): Promise<Parked> {
  const agent = new ScriptedAgent("http://unused", "");
  const images = [deps.config.base_image];
  const request = agent.pollRequest({ images, free_slots: 1, wait_s: 20, ...changes });
  const reply = poll(deps, request, tokenHash, signal);
  await quiet();
  return { reply };
}

/** Submits a job, and returns the database calls from then on. */
async function afterJob(): Promise<string[]> {
  asked = [];
  await submit(
    clientOf(deps),
    { code: "1", input_data: {}, startup_timeout: 60, job_type: "default", requirements: [] },
    origin,
  );
  await quiet();
  return [...asked];
}

test("a job wakes only one of the waiting agents, so many cost no more than few", async () => {
  const first = await park();
  const few = await afterJob();
  expect((await first.reply).jobs).toHaveLength(1);

  const [next] = [await park()];
  for (let i = 0; i < 50; i++) await park();
  expect((await afterJob()).length).toBe(few.length);
  expect((await next.reply).jobs).toHaveLength(1);
});

test("an agent without a free slot is not woken for a job", async () => {
  const alone = (await afterJob()).length;
  for (let i = 0; i < 5; i++) await park({ free_slots: 0, free_builds: 1 });
  expect((await afterJob()).length).toBe(alone);
});

test("a job passes from agents that may not run it to an agent that may", async () => {
  const { agent } = new ScriptedAgent("http://unused", "").status();
  const accepts = { job_types: ["other"], builds: false };
  for (let i = 0; i < 3; i++) {
    await park({ agent: { ...agent, id: crypto.randomUUID(), accepts } });
  }
  const able = await park();
  await afterJob();
  expect((await able.reply).jobs).toHaveLength(1);
});

test("a job passes on from an agent that hangs up when it is woken", async () => {
  const hanging = new AbortController();
  const gone = await park({}, hanging.signal);
  const other = await park();
  const notify = deps.notifier.notify.bind(deps.notifier);
  deps.notifier.notify = (...args) => {
    const isWoken = notify(...args);
    hanging.abort();
    return isWoken;
  };
  await afterJob();
  expect((await gone.reply).jobs).toEqual([]);
  expect((await other.reply).jobs).toHaveLength(1);
});

test("a job passes on from an agent whose poll fails while it looks for the job", async () => {
  const failing = await park();
  const other = await park();
  const { client } = store.db;
  const execute = client.execute.bind(client);
  let isBroken = false;
  const notify = deps.notifier.notify.bind(deps.notifier);
  deps.notifier.notify = (...args) => {
    isBroken = true;
    return notify(...args);
  };
  client.execute = (statement: Parameters<typeof execute>[0]) => {
    if (!isBroken) return execute(statement);
    isBroken = false;
    return Promise.reject(new Error("no answer"));
  };
  const failed = failing.reply.catch((error: unknown) => String(error));
  await afterJob();
  expect(await failed).toContain("no answer");
  expect((await other.reply).jobs).toHaveLength(1);
});

test("two jobs at once go to two agents", async () => {
  const agents = [await park(), await park(), await park()];
  await Promise.all([afterJob(), afterJob()]);
  over.abort();
  const replies = await Promise.all(agents.map(({ reply }) => reply));
  expect(replies.map(({ jobs }) => jobs.length)).toEqual([1, 1, 0]);
});

describe("jobs that max_running holds back", () => {
  const limit = (most: number | null) =>
    limitTenant(deps, by(), "default", { ...noLimits, max_running: most });
  const allFree = { free_slots: 4, wait_s: 20 };

  test("start as soon as another job of their tenant ends, also on an agent with free slots", async () => {
    await limit(1);
    await afterJob();
    await afterJob();
    const [first] = (await (await park(allFree)).reply).jobs;
    const waiting = await park(allFree);
    const leased = await findExecution(store.db, first!.execution_id);
    await recordResult(deps, leased!, first!.lease_id, success);
    await quiet();
    expect((await waiting.reply).jobs).toHaveLength(1);
  });

  test("start as soon as an agent that ran one is gone", async () => {
    await limit(1);
    await afterJob();
    await afterJob();
    const { agent } = new ScriptedAgent("http://unused", "").status();
    const [first] = (await (await park({ ...allFree, agent })).reply).jobs;
    await store.db.client.execute("update executions set max_attempts = 1");
    const waiting = await park(allFree);
    await leave(deps, { agent_id: agent.id, crashed: true }, tokenHash);
    await quiet();
    const jobs = (await waiting.reply).jobs;
    expect(jobs).toHaveLength(1);
    expect(jobs[0]?.execution_id).not.toBe(first?.execution_id);
  });

  test.each([2, null])("start when the limit becomes %s", async (most) => {
    await limit(1);
    for (let n = 0; n < 2; n++) await afterJob();
    await (
      await park(allFree)
    ).reply;
    const waiting = await park(allFree);
    await limit(most);
    await quiet();
    expect((await waiting.reply).jobs).toHaveLength(1);
  });
});

test("a job that the share of its tenant holds back starts as soon as one ends on its agent", async () => {
  for (const name of ["default", "b"])
    await setLimits(store.db, name, noLimits, { ...by(), at: Date.now() });
  const { agent } = new ScriptedAgent("http://unused", "").status();
  await (
    await park({ free_slots: 2, slots: 2, agent, wait_s: 0 })
  ).reply;
  for (let n = 0; n < 2; n++) await afterJob();
  const asked = { agent, slots: 2, wait_s: 20 };
  const [first, ...more] = (await (await park({ ...asked, free_slots: 2 })).reply).jobs;
  expect(more).toEqual([]);
  const leases = [first!.lease_id];
  const waiting = await park({ ...asked, free_slots: 1, leases });
  const leased = await findExecution(store.db, first!.execution_id);
  await recordResult(deps, leased!, first!.lease_id, success);
  await quiet();
  expect((await waiting.reply).jobs).toHaveLength(1);
});

const hourMs = 3_600_000;

/** An agent whose token another process asks to be replaced, by a clock that is ahead by `skewMs`. */
async function askToRotate(skewMs: number): Promise<void> {
  await askForRotation(store.db, tokenHash, by(Date.now() + skewMs));
}

async function joinAgent(): Promise<void> {
  const code = { codeHash: "code", name: null, expiresAt: Date.now() + hourMs };
  await addJoinCode(store.db, code, by());
  await exchangeCode(store.db, "code", { id: tokenHash, tokenHash: "t", name: "n" }, Date.now());
}

test.each([
  ["language was removed", {}, "no longer has the language tcl"],
  ["job type is another tenant's now", { tenants: ["b"] }, "is no longer open to tenant default"],
])("a job whose %s while it waited fails, and frees its slot", async (_what, later, why) => {
  const definition = JobTypeDefinition.parse({
    languages: { tcl: { file: "a.tcl", run: ["tclsh"] } },
  });
  deps = { ...deps, config: { ...deps.config, job_types: { default: definition } } };
  const job = {
    code: "1",
    input_data: {},
    startup_timeout: 60,
    job_type: "default",
    requirements: [],
  };
  const lost = await submit(clientOf(deps), { ...job, language: "tcl" }, origin);
  const next = await submit(clientOf(deps, "b"), job, origin);
  deps.config.job_types = { default: JobTypeDefinition.parse(later) };

  const { jobs } = await (await park()).reply;
  expect(jobs.map((leased) => leased.execution_id)).toEqual([next.job_id]);
  expect(await findExecution(store.db, lost.job_id)).toMatchObject({
    status: "failed",
    exitCode: null,
    error: {
      type: "config_error",
      phase: "startup",
      message: `The job type default ${why}: the configuration was changed while the job waited.`,
    },
  });
});

test("an agent that another process has asked for a new token waits in its next poll, also if that clock is ahead", async () => {
  await joinAgent();
  await askToRotate(hourMs);
  const { reply } = await park();
  expect(await Promise.race([reply, Promise.resolve("waits")])).toBe("waits");
  over.abort();
  expect(await reply).toMatchObject({ rotate: true });
});

test("a waiting agent hears at once that it shall replace its token, also from a clock that is behind", async () => {
  await joinAgent();
  const { agent } = new ScriptedAgent("http://unused", "").status();
  const { reply } = await park({ agent });
  await askToRotate(-hourMs);
  deps.notifier.notify(`agent:${agent.id}`);
  await quiet();
  expect(await Promise.race([reply, Promise.resolve("waits")])).toMatchObject({ rotate: true });
});
