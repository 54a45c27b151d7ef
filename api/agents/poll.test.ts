import { setImmediate as nextTick } from "node:timers/promises";
import type { InStatement } from "@libsql/client";
import * as fc from "fast-check";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { JobTypeDefinition } from "../../shared/wire/job-types.ts";
import type { PollReply, PollRequest } from "../../shared/wire/leases.ts";
import { SessionRequest } from "../../shared/wire/sessions.ts";
import { createApp } from "../app.ts";
import type { Deps, Notifier } from "../deps.ts";
import { buildableBy, buildImage, releaseBuildLease } from "../images/builds.ts";
import { openBuilds, requestBuild } from "../images/sql.ts";
import { readEnvironments } from "../jobs/read.ts";
import { advance } from "../jobs/lease.ts";
import { findExecution } from "../jobs/sql.ts";
import { submit } from "../jobs/submit.ts";
import { releaseSession, sweepSessions } from "../sessions/lease.ts";
import { deleteSession, makeSession } from "../sessions/sessions.ts";
import { findSession } from "../sessions/sql.ts";
import { expire } from "../sweep.ts";
import { setLimits } from "../tenants/sql.ts";
import { limitTenant } from "../tenants/tenants.ts";
import { readyReport, ScriptedAgent, success } from "../testing/scripted-agent.ts";
import { created, newCall, readySession } from "../testing/session-store.ts";
import { onExecute, sqlOf } from "../testing/statements.ts";
import {
  by,
  clientOf,
  leaseJob,
  noLimits,
  openTempStore,
  storeJob,
  testDeps,
  type TempStore,
} from "../testing/temp-store.ts";
import { store, useStore } from "../testing/use-store.ts";
import { addJoinCode, askForRotation, exchangeCode } from "./agents.ts";
import { listAgents } from "./fleet.ts";
import { leave, poll, readTodo } from "./poll.ts";
import { recordResult, releaseLease } from "./posts.ts";

const token = "a-token-of-16-characters";
const origin = { mode: "async", correlationId: "c", clientIp: "192.0.2.1" } as const;

/** Submits a job of a tenant, and returns its id. */
async function submitJob(deps: Deps, fields: object = {}, tenant?: string): Promise<string> {
  const limits = { startup_timeout: 60, requirements: [] };
  const job = { code: "1", input_data: {}, job_type: "default", ...limits, ...fields };
  return (await submit(clientOf(deps, tenant), job, origin)).job_id;
}

describe("poll", () => {
  const tokenHash = "token";

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
    onExecute(store.db.client, (sql) => void asked.push(sql));
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
    const agent = new ScriptedAgent();
    const images = [deps.config.base_image];
    const request = agent.pollRequest({ images, free_slots: 1, wait_s: 20, ...changes });
    const reply = poll(deps, request, tokenHash, signal);
    await quiet();
    return { reply };
  }

  /** Submits a job, and returns the database calls from then on. */
  async function afterJob(): Promise<string[]> {
    asked = [];
    await submitJob(deps);
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

  const job = () => submitJob(deps);
  const session = () => makeSession(clientOf(deps), SessionRequest.parse({}), origin);
  const build = async () => {
    const [environment] = await readEnvironments(deps);
    // Nobody waits for its end.
    buildImage(deps, environment!, undefined, by(), over.signal).catch(() => {});
  };
  const room = { free_sessions: 1, free_builds: 1 };
  const ofScience = SessionRequest.parse({ job_type: "science" });

  test.each([
    ["session", "sessions" as const, session],
    ["build", "builds" as const, build],
  ])("a %s wakes only one of the waiting agents", async (_what, kind, bring) => {
    const costOf = async (agents: number): Promise<number> => {
      const polls: Parked[] = [];
      for (let n = 0; n < agents; n++) polls.push(await park(room));
      asked = [];
      await bring();
      await quiet();
      const cost = asked.length;
      over.abort();
      over = new AbortController();
      const replies = await Promise.all(polls.map(({ reply }) => reply));
      expect(replies.filter((reply) => reply[kind]!.length > 0)).toHaveLength(1);
      await store.db.client.execute("delete from builds");
      return cost;
    };
    const alone = await costOf(1);
    expect(await costOf(20)).toBe(alone);
  });

  const older = {
    id: "older",
    jobType: "default",
    tag: "older",
    spec: JSON.stringify({ base_image: "python:3.13-slim", requirements: [] }),
    imageRef: "a:latest",
    correlationId: "c",
    createdAt: 0,
  };
  test.each([
    ["session", "sessions" as const, () => created(store.db, { expiresAt: 1e15 }), session],
    ["build", "builds" as const, () => requestBuild(store.db, older, by()), build],
  ])(
    "a %s passes on from an agent that takes an older one",
    async (_what, kind, bringUnheard, bring) => {
      const polls = [await park(room), await park(room)];
      await bringUnheard();
      await bring();
      const replies = await Promise.all(polls.map(({ reply }) => reply));
      expect(replies.map((reply) => reply[kind]!.length)).toEqual([1, 1]);
    },
  );

  test.each([
    ["job", () => submitJob(deps, { job_type: "science" })],
    ["session", () => makeSession(clientOf(deps), ofScience, origin)],
  ])("a %s whose image is not built wakes an agent, which builds it", async (_what, bring) => {
    const job_types = { science: { requirements: ["numpy"] } } as never;
    deps = testDeps(store.db, store.folder, Date.now, { job_types });
    const { reply } = await park(room);
    await bring();
    expect((await reply).builds).toMatchObject([{ job_type: "science" }]);
  });

  describe("of what nobody was told, the look of each second wakes an agent:", () => {
    const queued = (columns: object = {}) => storeJob(store.db, columns);
    test.each<[string, keyof PollReply, () => Promise<unknown>]>([
      ["a job", "jobs", queued],
      ["a job whose time comes", "jobs", () => queued({ availableAt: 5, runAt: 5 })],
      [
        "a job that is tried again",
        "jobs",
        async () => {
          await queued();
          const leaseId = (await leaseJob(store.db, { now: 1, ttlMs: 1e15 })).leaseId;
          const error = { type: "docker_error", message: "", phase: "startup" } as const;
          const event = { kind: "release", leaseId, error, retryAt: 5 } as const;
          await advance(store.db, { leaseId }, event, 2);
        },
      ],
      ["a session", "sessions", () => created(store.db, { expiresAt: 1e15 })],
      ["a build", "builds", () => requestBuild(store.db, older, by())],
    ])("%s", async (_what, kind, store_) => {
      const { reply } = await park(room);
      let at = 1;
      deps.now = () => at;
      await store_();
      at = 5;
      await expire(deps);
      expect((await reply)[kind]).toHaveLength(1);
    });

    test("a call of a session that the agent holds", async () => {
      const { id, agentId } = await readySession(store.db, Date.now(), { expiresAt: 1e15 });
      const { agent } = new ScriptedAgent().status();
      const { reply } = await park({ agent: { ...agent, id: agentId! }, free_slots: 0 });
      await newCall(store.db, id);
      await expire(deps);
      expect((await reply).jobs).toHaveLength(1);
    });

    test("a job that another agent may run now that the only other is silent", async () => {
      const other = new ScriptedAgent();
      const request = other.pollRequest({ images: [deps.config.base_image] });
      await poll(deps, request, tokenHash, over.signal);
      const { reply } = await park({ images: [] });
      const later = Date.now() + 60_000;
      deps.now = () => later;
      await submitJob(deps);
      expect(await Promise.race([reply, quiet()])).toBeUndefined();
      await expire(deps);
      expect((await reply).jobs).toHaveLength(1);
    });
  });

  test("a session that a client ends wakes the agent that holds it", async () => {
    const { id, agentId, leaseId } = await readySession(store.db, Date.now(), { expiresAt: 1e15 });
    const { agent } = new ScriptedAgent().status();
    const holds = { agent: { ...agent, id: agentId! }, sessions: [leaseId] };
    const { reply } = await park({ ...holds, free_slots: 0 });
    await deleteSession(clientOf(deps), id, by());
    expect((await reply).lost).toEqual([leaseId]);
  });

  test("a session that its agent gives back wakes another agent", async () => {
    const first = await park(room);
    await session();
    const [leased] = (await first.reply).sessions!;
    const other = await park(room);
    await releaseSession(deps, leased!.lease_id, { error: null as never, agent_stops: true });
    expect((await other.reply).sessions).toHaveLength(1);
  });

  describe("whatever comes in any order,", () => {
    const jobType = fc.constantFrom("default", "red");
    const nth = fc.nat(2);
    const anyStep = fc.oneof(
      fc.record({
        do: fc.constant("poll" as const),
        accepts: fc.constantFrom<(string[] | null)[]>(null, null, ["default"], ["red"]),
        free_slots: fc.nat(2),
        free_sessions: fc.nat(2),
        free_builds: fc.nat(1),
      }),
      fc.record({
        do: fc.constantFrom("job" as const, "session" as const, "build" as const),
        jobType,
        tag: fc.constantFrom("a", "b"),
      }),
      fc.record({ do: fc.constantFrom("hang up" as const, "give back" as const), nth }),
    );
    type Step = typeof anyStep extends fc.Arbitrary<infer S> ? S : never;
    /** A poll that waits, and what it asked for. */
    type Waiting = { request: PollRequest; hangUp: AbortController };

    test("nothing waits that a waiting poll would find if it looked", async () => {
      const seen = new Set<string>();
      const agent = new ScriptedAgent();
      const run = async (steps: [Step, boolean][]): Promise<void> => {
        const job_types = { red: {} } as never;
        deps = testDeps(store.db, store.folder, Date.now, { job_types });
        const waiting = new Set<Waiting>();
        const held: (() => Promise<unknown>)[] = [];
        const taken = (reply: PollReply): void => {
          const back = { error: null as never, agent_stops: true } as const;
          for (const [what, leased, giveBack] of [
            ["job", reply.jobs, releaseLease],
            ["session", reply.sessions ?? [], releaseSession],
            ["build", reply.builds, releaseBuildLease],
          ] as const)
            for (const { lease_id } of leased) {
              seen.add(`${what} taken`);
              held.push(() => giveBack(deps, lease_id, back));
            }
        };
        const take = async (step: Step): Promise<unknown> => {
          if ("nth" in step) {
            if (step.do === "hang up") return [...waiting][step.nth % waiting.size]?.hangUp.abort();
            const [giveBack] = held.splice(step.nth % (held.length + 1), 1);
            if (giveBack) seen.add("given back");
            return giveBack?.();
          }
          if ("tag" in step) {
            const { jobType: job_type, tag } = step;
            if (step.do === "job") return submitJob(deps, { job_type });
            if (step.do === "session")
              return makeSession(clientOf(deps), SessionRequest.parse({ job_type }), origin);
            const all = await readEnvironments(deps);
            const environment = all.find(({ jobType: { name } }) => name === job_type)!;
            // Nobody waits for its end.
            return void buildImage(deps, environment, tag, by(), over.signal).catch(() => {});
          }
          const { do: _do, accepts: job_types, ...room } = step;
          const id = crypto.randomUUID();
          const own = agent.status().agent;
          const accepts = { ...own.accepts, job_types };
          const asked = { ...room, wait_s: 20, images: [deps.config.base_image], slots: 2 };
          const request = agent.pollRequest({ ...asked, agent: { ...own, id, accepts } });
          const one = { request, hangUp: new AbortController() };
          waiting.add(one);
          void poll(deps, request, tokenHash, AbortSignal.any([over.signal, one.hangUp.signal]))
            .then(taken)
            .finally(() => waiting.delete(one));
        };
        for (const [step, hasEffect] of steps) {
          await take(step);
          if (hasEffect) await quiet();
        }
        await quiet();
        const environments = await readEnvironments(deps);
        const open = await openBuilds(store.db);
        const queued = open.filter(({ status }) => status === "queued");
        for (const { request } of waiting) {
          const { due, sessions } = await readTodo(deps, request, environments);
          const builds = await buildableBy(deps, request, environments);
          const isBuild = queued.some((one) =>
            builds.some(({ jobType }) => jobType.name === one.jobType),
          );
          expect({
            jobs: due && request.free_slots > 0,
            sessions,
            builds: isBuild && request.free_builds > 0,
          }).toEqual({ jobs: false, sessions: false, builds: false });
          seen.add("a poll waits");
        }
        over.abort();
        over = new AbortController();
        await quiet();
        for (const table of ["executions", "sessions", "builds", "agents"])
          await store.db.client.execute(`delete from ${table}`);
      };
      const steps = fc.array(fc.tuple(anyStep, fc.boolean()), {
        minLength: 5,
        maxLength: 25,
        size: "max",
      });
      await fc.assert(fc.asyncProperty(steps, run), { numRuns: 100 });
      expect([...seen].sort()).toEqual([
        "a poll waits",
        "build taken",
        "given back",
        "job taken",
        "session taken",
      ]);
    });
  });

  test("an agent without a free slot is not woken for a job", async () => {
    const alone = (await afterJob()).length;
    for (let i = 0; i < 5; i++) await park({ free_slots: 0, free_builds: 1 });
    expect((await afterJob()).length).toBe(alone);
  });

  test("a job passes from agents that may not run it to an agent that may", async () => {
    const { agent } = new ScriptedAgent().status();
    const accepts = { job_types: ["other"], builds: false };
    for (let i = 0; i < 3; i++) {
      await park({ agent: { ...agent, id: crypto.randomUUID(), accepts } });
    }
    const able = await park();
    await afterJob();
    expect((await able.reply).jobs).toHaveLength(1);
  });

  test("a job wakes none of the agents that may not run it, also while jobs of other types wait", async () => {
    const alone = await park();
    const one = (await afterJob()).length;
    expect((await alone.reply).jobs).toHaveLength(1);

    await storeJob(store.db, { jobType: "other" });
    const { agent } = new ScriptedAgent().status();
    const accepts = { job_types: ["nothing"], builds: false };
    for (let i = 0; i < 20; i++)
      await park({ agent: { ...agent, id: crypto.randomUUID(), accepts } });
    const able = [await park(), await park(), await park()];
    const calls = await afterJob();
    expect((await able[0]!.reply).jobs).toHaveLength(1);
    // The second looks as well, because jobs wait.
    expect(calls.length).toBeLessThanOrEqual(2 * one);
  });

  test.each([
    ["job", "jobs" as const, job],
    ["session", "sessions" as const, session],
    ["build", "builds" as const, build],
  ])("a %s passes on from an agent that hangs up when it is woken", async (work, kind, bring) => {
    const hanging = new AbortController();
    const gone = await park(room, hanging.signal);
    const other = await park(room);
    const notify = deps.notifier.notify.bind(deps.notifier);
    deps.notifier.notify = (topic, ...more) => {
      const isWoken = notify(topic, ...more);
      if (topic === work) hanging.abort();
      return isWoken;
    };
    await bring();
    expect((await gone.reply)[kind]).toEqual([]);
    expect((await other.reply)[kind]).toHaveLength(1);
  });

  test("a job passes on from an agent whose poll fails while it looks for the job", async () => {
    const failing = await park();
    const other = await park();
    const { client } = store.db;
    const batch = client.batch.bind(client);
    let isBroken = false;
    const notify = deps.notifier.notify.bind(deps.notifier);
    deps.notifier.notify = (...args) => {
      isBroken = true;
      return notify(...args);
    };
    client.batch = (...given) => {
      if (!isBroken) return batch(...given);
      isBroken = false;
      return Promise.reject(new Error("no answer"));
    };
    const failed = failing.reply.catch((error: unknown) => String(error));
    await afterJob();
    expect(await failed).toContain("no answer");
    expect((await other.reply).jobs).toHaveLength(1);
  });

  test("a job leased to a poll that its agent has given up comes with the next one at once", async () => {
    // Agents are woken once the job is stored.
    delete deps.notifier.announce;
    const givenUp = new AbortController();
    const agent = new ScriptedAgent();
    const images = [deps.config.base_image];
    const request = agent.pollRequest({ images, free_slots: 1, wait_s: 20 });
    const ask = (signal: AbortSignal) => poll(deps, request, tokenHash, signal);
    const first = ask(givenUp.signal);
    await quiet();
    const { client } = store.db;
    const batch = client.batch.bind(client);
    let next: Promise<PollReply> | undefined;
    const [hasLooked, isLeased] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    client.batch = async (...given) => {
      const [statements] = given as [InStatement[]];
      if (!statements.some((one) => /update "?executions/i.test(sqlOf(one))))
        return batch(...given);
      if (next) {
        hasLooked.resolve();
        await isLeased.promise;
        return batch(...given);
      }
      givenUp.abort();
      next = ask(over.signal);
      // It has seen the job wait.
      await hasLooked.promise;
      return batch(...given).finally(isLeased.resolve);
    };
    await submitJob(deps);
    const { jobs } = await first;
    expect(jobs).toHaveLength(1);
    let got: PollReply | undefined;
    void next!.then((reply) => (got = reply));
    await quiet();
    expect(got?.jobs).toEqual(jobs);
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

    test("are looked for by no other agent when none of that tenant waits", async () => {
      await limit(1);
      await storeJob(store.db, { tenant: "b", jobType: "other" });
      await afterJob();
      const [first] = (await (await park(allFree)).reply).jobs;
      const leased = await findExecution(store.db, first!.execution_id);
      await park(allFree);
      asked = [];
      await recordResult(deps, leased!, first!.lease_id, success);
      await quiet();
      expect(asked).toEqual([]);
    });

    test("start as soon as an agent that ran one is gone", async () => {
      await limit(1);
      await afterJob();
      await afterJob();
      const { agent } = new ScriptedAgent().status();
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
    const { agent } = new ScriptedAgent().status();
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
    const lost = await submitJob(deps, { language: "tcl" });
    const next = await submitJob(deps, {}, "b");
    deps.config.job_types = { default: JobTypeDefinition.parse(later) };

    const { jobs } = await (await park()).reply;
    expect(jobs.map((leased) => leased.execution_id)).toEqual([next]);
    expect(await findExecution(store.db, lost)).toMatchObject({
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
    const { agent } = new ScriptedAgent().status();
    const { reply } = await park({ agent });
    await askToRotate(-hourMs);
    deps.notifier.notify(`agent:${agent.id}`);
    await quiet();
    expect(await Promise.race([reply, Promise.resolve("waits")])).toMatchObject({ rotate: true });
  });
});

describe("poll cost", () => {
  useStore();
  let deps: Deps;
  let [now, asked] = [0, 0];
  beforeEach(() => {
    const { client } = store.db;
    const [execute, batch] = [client.execute.bind(client), client.batch.bind(client)];
    const counting =
      <Args extends unknown[], Result>(call: (...args: Args) => Result) =>
      (...args: Args): Result => {
        asked += 1;
        return call(...args);
      };
    client.execute = counting(execute);
    client.batch = counting(batch);
    deps = testDeps(store.db, store.folder, () => now, { agent_tokens: [token] });
    deps.notifier = nobody;
  });

  /** A notifier that never wakes anyone, and on which every wait times out at once. */
  const nobody: Notifier = {
    notify: () => false,
    subscribe: () => ({
      next: (timeoutMs) => ((now += timeoutMs), Promise.resolve({ isWoken: false, forJob: false })),
      wants() {},
      settle() {},
      close() {},
    }),
  };

  /** Counts the database calls of a poll that finds nothing. Over HTTP, each call is a request. */
  async function callsOf(wait_s: number): Promise<number> {
    const agent = new ScriptedAgent(createApp(deps), token);
    const asking = { images: [deps.config.base_image], free_slots: 1 };
    await agent.poll(asking);
    asked = 0;
    expect(await agent.poll({ ...asking, wait_s })).toMatchObject({ jobs: [] });
    return asked;
  }

  test("the number of a poll's database calls is limited by its waiting time", async () => {
    expect(await callsOf(5)).toBeLessThanOrEqual(30);
    // The usual waiting time of an agent's poll.
    expect(await callsOf(15)).toBeLessThanOrEqual(50);
  });

  test("a poll that repeats an agent's status within a second does not write it", async () => {
    const agent = new ScriptedAgent(createApp(deps), token);
    const lastSeen = async (pauseMs: number) => {
      now += pauseMs;
      await agent.poll({ free_slots: 0 });
      return (await listAgents(store.db))[0]?.lastSeenAt;
    };
    const first = await lastSeen(0);
    expect(await lastSeen(500)).toBe(first);
    expect(await lastSeen(500)).toBe(now);
  });

  test("ready sandboxes that have changed within that second are stored while the poll waits", async () => {
    const agent = new ScriptedAgent(createApp(deps), token);
    await agent.poll({ free_slots: 0, warm: 1 });
    await agent.poll({ free_slots: 0, warm: 2 });
    const warm = async () => (await listAgents(store.db))[0]?.warm;
    expect(await warm()).toBe(1);
    await agent.poll({ free_slots: 0, warm: 2, wait_s: 2 });
    expect(await warm()).toBe(2);
  });

  test("a poll leases a job whose lease it finds to be over, although time passes meanwhile", async () => {
    const id = await storeJob(store.db);
    await leaseJob(store.db, { now: 1, ttlMs: 10, agentId: "gone" });
    now = 1000;
    deps.now = () => now++;
    const agent = new ScriptedAgent(createApp(deps), token);
    const { jobs } = await agent.poll({ images: [deps.config.base_image], free_slots: 1 });
    expect(jobs).toMatchObject([{ execution_id: id, attempt: 2 }]);
  });
});

describe("sessions", () => {
  useStore();
  let deps: Deps;
  let now: number;
  let agent: ScriptedAgent;

  beforeEach(() => {
    now = 1_000_000;
    deps = testDeps(store.db, store.folder, () => now, { agent_tokens: [token], lease_ttl_s: 100 });
    agent = new ScriptedAgent(createApp(deps), token);
    agent.maxSessions = 2;
  });

  /** A poll without a free slot. */
  const poll = (changes: Partial<PollRequest> = {}) =>
    agent.poll({ free_slots: 0, images: [deps.config.base_image], ...changes });
  const newSession = () =>
    created(store.db, { createdAt: now, expiresAt: now + 1e6, idleTimeoutS: null });
  const postSession = async (lease: string, what: string, body: object) =>
    (await agent.postSession(lease, what, body)).status;

  /** A session that the agent serves. */
  async function serving() {
    const { id } = await newSession();
    const [leased] = (await poll()).sessions!;
    const lease = leased!.lease_id;
    expect(await postSession(lease, "ready", readyReport)).toBe(200);
    return { id, lease };
  }

  describe("an agent that holds sessions", () => {
    test("gets those it has room for, with what it needs to start them", async () => {
      const [first] = [await newSession(), await newSession(), await newSession()];
      const { sessions } = await poll();
      expect(sessions).toHaveLength(2);
      expect(sessions![0]).toMatchObject({
        session_id: first.id,
        tenant: "default",
        image: deps.config.base_image,
        env: { A: "b" },
        job_type: { name: "default" },
      });
      expect((await poll()).sessions).toEqual([]);
    });

    test("gets none if it says nothing of sessions, or an operator drains it", async () => {
      await newSession();
      agent.maxSessions = 0;
      expect((await poll()).sessions).toEqual([]);
      agent.maxSessions = 1;
      await store.db.client.execute("update agents set draining_at = 1");
      expect((await poll()).sessions).toEqual([]);
    });

    test("gets calls without a free slot, also while it drains: one at a time in each session", async () => {
      const { id, lease } = await serving();
      const [a, b] = [await newCall(store.db, id), await newCall(store.db, id)];
      await store.db.client.execute("update agents set draining_at = 1");
      const [call] = (await poll()).jobs;
      expect(call).toMatchObject({
        execution_id: a,
        attempt: 1,
        call: { session_lease_id: lease, number: 1, context: "default", contexts: [], env: {} },
      });
      expect((await poll()).jobs).toEqual([]);
      const [next] = (await agent.resultAndTake(call!.lease_id)).jobs;
      expect(next).toMatchObject({ execution_id: b, call: { number: 2 } });
    });

    test("gets a call again if the reply with it was lost", async () => {
      const { id } = await serving();
      await newCall(store.db, id);
      const [call] = (await poll()).jobs;
      agent.held.clear();
      expect((await poll()).jobs).toMatchObject([{ lease_id: call!.lease_id }]);
    });

    test("is woken by a new call and by the end of a session", async () => {
      const { id, lease } = await serving();
      const first = poll({ wait_s: 20 });
      await newCall(store.db, id);
      deps.notifier.notify(`agent:${agent.id}`);
      expect((await first).jobs).toHaveLength(1);
      const second = poll({ wait_s: 20 });
      now += 1e6;
      await sweepSessions(deps);
      expect((await second).lost).toContain(lease);
    });

    test("keeps its sessions by listing them, and loses those it does not list", async () => {
      const { id, lease } = await serving();
      now += 60_000;
      await poll();
      now += 60_000;
      expect((await poll()).lost).toEqual([]);
      agent.heldSessions.delete(lease);
      now += 100_000;
      await sweepSessions(deps);
      expect(await findSession(store.db, id)).toMatchObject({ reason: "agent_lost" });
    });
  });

  describe("a post of a session", () => {
    test("can be repeated", async () => {
      const { lease } = await serving();
      expect(await postSession(lease, "ready", readyReport)).toBe(200);
      const error = { type: "oom", message: "too much", phase: "execution" };
      const end = { reason: "out_of_memory", error };
      expect(await postSession(lease, "ended", end)).toBe(200);
      expect(await postSession(lease, "ended", end)).toBe(200);
      expect(await postSession(lease, "ended", { ...end, reason: "engine_lost" })).toBe(409);
    });

    test("that its sandbox died leaves the call that ran to its own report, and cancels those that wait", async () => {
      const { id, lease } = await serving();
      const [running, waiting] = [await newCall(store.db, id), await newCall(store.db, id)];
      const [call] = (await poll()).jobs;
      const error = { type: "internal_error", message: "gone", phase: "execution" };
      await postSession(lease, "ended", { reason: "engine_lost", error });
      expect(await findExecution(store.db, waiting)).toMatchObject({ status: "cancelled" });
      await agent.post(call!.lease_id, "release", { error });
      expect(await findExecution(store.db, running)).toMatchObject({ status: "failed", error });
    });

    test("is 409 once the session has ended, and 403 from another agent's token", async () => {
      const { id, lease } = await serving();
      await store.db.client.execute("update agents set token_hash = 'other'");
      expect(await postSession(lease, "ready", readyReport)).toBe(403);
      await store.db.client.execute("delete from agents");
      const release = { error: { type: "docker_error", message: "gone", phase: "startup" } };
      expect(await postSession(lease, "release", release)).toBe(409);
      expect(await findSession(store.db, id)).toMatchObject({ status: "ready" });
      expect(await postSession(crypto.randomUUID(), "ready", readyReport)).toBe(409);
    });
  });

  describe("the sessions of an agent", () => {
    test.each([
      [false, "agent_stopped", "cancelled"],
      [true, "agent_lost", "failed"],
    ])("that has ended (crashed: %s) end as %s", async (crashed, reason, status) => {
      const { id } = await serving();
      const [running, waiting] = [await newCall(store.db, id), await newCall(store.db, id)];
      await poll();
      await agent.leave(crashed);
      expect(await findSession(store.db, id)).toMatchObject({ status: "ended", reason });
      expect(await findExecution(store.db, running)).toMatchObject({ status });
      expect(await findExecution(store.db, waiting)).toMatchObject({ status: "cancelled" });
    });

    test("that has left wait for another agent if they were not ready", async () => {
      const { id } = await newSession();
      await poll();
      await agent.leave();
      expect(await findSession(store.db, id)).toMatchObject({ status: "queued", attempt: 0 });
    });
  });
});
