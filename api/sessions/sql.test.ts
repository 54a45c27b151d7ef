import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { tempFolder } from "../../shared/testing/test-file.ts";
import { recordAgent } from "../agents/agents.ts";
import { claimCalls, claimNext } from "../agents/claim.ts";
import { listExecutions } from "../jobs/executions.ts";
import { advance, finishExecution, submittedPayloads } from "../jobs/lease.ts";
import { findExecution, queuePosition, readQueueStats } from "../jobs/sql.ts";
import { submitExecution } from "../jobs/submit.ts";
import { endOverdue } from "../jobs/wait.ts";
import { readCounts } from "../monitoring/metrics.ts";
import { readChanges } from "../platform/notifier.ts";
import { removeExecutions } from "../store/retention.ts";
import { setLimits } from "../tenants/sql.ts";
import { readyReport, ScriptedAgent } from "../testing/scripted-agent.ts";
import {
  created,
  newCall,
  newSession,
  readySession,
  runningCall,
  startingSession,
  stateOfNew,
  terms,
} from "../testing/session-store.ts";
import { anySessionStep, SessionWorld } from "../testing/session-world.ts";
import { miscounted, result } from "../testing/store-model.ts";
import { makeStart } from "../testing/store-world.ts";
import { by, handleOf, newExecution, noLimits, offers } from "../testing/temp-store.ts";
import { store, useStore } from "../testing/use-store.ts";
import { claimSessions, dueSessions, renewSessions, undeliveredSessions } from "./lease.ts";
import {
  advanceSession,
  busySessions,
  changeSession,
  createSession,
  findSession,
  forgetSessions,
  listSessions,
  type SessionEvent,
  type SessionState,
  sessionTransition,
} from "./sql.ts";

const now = 100_000;
const error = { type: "docker_error", message: "gone", phase: "startup" } as const;
const report = {
  job_ref: "ref",
  container_runtime: "runc",
  container_backend: "zygote",
  python_version: "3.13.2",
} as const;

const queued = stateOfNew(now + 1, 10);
const held = { leaseId: "lease", agentId: "agent", startedAt: 1, leaseExpiresAt: now + 1 };
const starting: SessionState = { ...queued, ...held, status: "starting", attempt: 1 };
const ready: SessionState = { ...starting, status: "ready", readyAt: now - 5000 };

const states: Record<string, SessionState> = {
  queued,
  "queued, its lifetime over": { ...queued, expiresAt: now },
  starting,
  "starting, last attempt": { ...starting, attempt: 2 },
  "starting, its lease expired": { ...starting, leaseExpiresAt: now },
  "starting for the last time, its lease expired": { ...starting, attempt: 2, leaseExpiresAt: now },
  ready,
  "ready, not used for long": { ...ready, readyAt: now - 10_000 },
  "ready for long, but used": { ...ready, readyAt: 1, usedAt: now - 9999 },
  "ready for ever": { ...ready, readyAt: 1, idleTimeoutS: null },
  "ready, its lifetime over": { ...ready, expiresAt: now },
  "ready, its lease expired": { ...ready, leaseExpiresAt: now },
  ended: { ...ready, status: "ended", reason: "idle", endedAt: 1, leaseExpiresAt: null, env: null },
};

const events: Record<string, SessionEvent> = {
  ready: { kind: "ready", leaseId: "lease", report },
  release: { kind: "release", leaseId: "lease", error },
  end: { kind: "end", leaseId: "lease", reason: "out_of_memory", error },
  leave: { kind: "leave", leaseId: "lease" },
  crash: { kind: "crash", leaseId: "lease" },
  expire: { kind: "expire" },
  idle: { kind: "idle" },
  lifetime: { kind: "lifetime" },
  fail: { kind: "fail", error },
  delete: { kind: "delete" },
  "ready of another lease": { kind: "ready", leaseId: "other", report },
  "release of another lease": { kind: "release", leaseId: "other", error },
  "end of another lease": { kind: "end", leaseId: "other", reason: "engine_lost", error },
  "leave of another lease": { kind: "leave", leaseId: "other" },
  "crash of another lease": { kind: "crash", leaseId: "other" },
};

const ended = (reason: string, why: object | null = null) => ({
  status: "ended",
  reason,
  error: why,
  endedAt: now,
  leaseExpiresAt: null,
  env: null,
});
const again = {
  status: "queued",
  leaseId: null,
  agentId: null,
  leaseExpiresAt: null,
  startedAt: null,
};
const internal = (message: string, phase: string) => ({ type: "internal_error", message, phase });
const lost = ended(
  "agent_lost",
  internal("The agent that held the session was lost.", "execution"),
);
const lostTwice = ended(
  "start_failed",
  internal("The agent was lost while it started the session, 2 times.", "startup"),
);
const stopped = ended(
  "agent_stopped",
  internal("The agent that held the session was stopped.", "execution"),
);
const becomesReady = {
  status: "ready",
  readyAt: now,
  jobRef: "ref",
  containerRuntime: "runc",
  containerBackend: "zygote",
  pythonVersion: "3.13.2",
};

const whenStarting = {
  ready: becomesReady,
  release: again,
  end: "not_ready",
  leave: { ...again, attempt: 0 },
  crash: again,
};
const whenReady = {
  ready: "not_starting",
  release: "not_starting",
  end: ended("out_of_memory", error),
  leave: stopped,
  crash: lost,
};

/** What each event does in each state: the columns that change, or the refusal. Others are below. */
const table: Record<string, Record<string, object | string>> = {
  queued: { fail: ended("start_failed", error) },
  "queued, its lifetime over": { lifetime: ended("lifetime"), fail: ended("start_failed", error) },
  starting: whenStarting,
  "starting, last attempt": {
    ...whenStarting,
    release: ended("start_failed", error),
    leave: { ...again, attempt: 1 },
    crash: lostTwice,
  },
  "starting, its lease expired": { expire: again },
  "starting for the last time, its lease expired": { expire: lostTwice },
  ready: whenReady,
  "ready, not used for long": { ...whenReady, idle: ended("idle") },
  "ready for long, but used": whenReady,
  "ready for ever": whenReady,
  "ready, its lifetime over": { ...whenReady, lifetime: ended("lifetime") },
  "ready, its lease expired": { expire: lost },
};

function otherwise(event: SessionEvent): object | string {
  if (event.kind === "delete") return ended("deleted");
  if (event.kind === "fail") return "not_queued";
  return ["expire", "idle", "lifetime"].includes(event.kind) ? "not_due" : "lease_lost";
}

describe.each(Object.entries(states))("a session that is %s", (name, state) => {
  test.each(Object.entries(events))("on %s", (what, event) => {
    const over = state.status === "ended" ? "ended" : undefined;
    const expected = over ?? table[name]?.[what] ?? otherwise(event);
    expect(sessionTransition(state, event, now)).toEqual(
      typeof expected === "string"
        ? { ok: false, refusal: expected }
        : { ok: true, change: expected },
    );
  });
});

const remove = (id: string, now = 10) => advanceSession(store.db, { id }, { kind: "delete" }, now);

describe("sessions", () => {
  useStore();

  describe("a new session", () => {
    test("waits, and its tenant has at most as many as it may", async () => {
      const { db } = store;
      expect(await createSession(db, newSession(), 1)).toMatchObject({
        kind: "created",
        session: { status: "queued", contexts: [], calls: 0 },
      });
      expect(await createSession(db, newSession(), 1)).toEqual({ kind: "full" });
      await db.client.execute("insert into tenants (name, created_at) values ('b', 1)");
      expect((await createSession(db, newSession({ tenant: "b" }), 1)).kind).toBe("created");
    });

    test("counts in what its tenant stores, and is refused above that", async () => {
      const { db } = store;
      const stored = async () => {
        const { rows } = await db.client.execute("select stored_bytes from tenants");
        return Number(rows[0]![0]);
      };
      const { id } = await created(db, {
        env: { A: "ä" },
        metadata: { a: "b" },
        requirements: ["x"],
      });
      expect(await stored()).toBe('{"A":"ä"}{"a":"b"}["x"]'.length + 1);
      await changeSession(handleOf(db), id, { metadata: {} });
      await remove(id);
      expect(await stored()).toBe('{}["x"]'.length);
      await db.client.execute("update tenants set max_stored_bytes = 17");
      expect(await createSession(db, newSession({ env: { A: "b" } }), 9)).toEqual({ kind: "full" });
      expect((await createSession(db, newSession({ env: {} }), 9)).kind).toBe("created");
      await forgetSessions(db, 99, 9);
      expect(await stored()).toBe("[]{}".length);
      expect((await db.client.execute(miscounted)).rows).toEqual([]);
    });
  });

  describe("a claim of sessions", () => {
    test("serves tenants that hold fewer first, then the oldest", async () => {
      const { db } = store;
      for (const name of ["b", "c"])
        await db.client.execute(`insert into tenants (name, created_at) values ('${name}', 1)`);
      const of = async (tenant: string) => (await created(db, { tenant })).id;
      const [b1, b2, b3, c1] = [await of("b"), await of("b"), await of("b"), await of("c")];
      const ids = async (count: number) =>
        (await claimSessions(db, terms(1), count, offers)).map(({ id }) => id).toSorted();
      expect(await ids(2)).toEqual([b1, c1].toSorted());
      expect(await ids(1)).toEqual([b2]);
      expect(await ids(9)).toEqual([b3]);
      expect(await ids(9)).toEqual([]);
    });

    test("takes offered job types only, and none whose lifetime is over", async () => {
      await created(store.db, { jobType: "other" });
      await created(store.db, { expiresAt: 5 });
      expect(await claimSessions(store.db, terms(5), 9, offers)).toEqual([]);
    });

    test("whose reply was lost is delivered again until the session is ready", async () => {
      const { leaseId } = await startingSession(store.db);
      const missed = async (held: string[]) =>
        (await undeliveredSessions(store.db, terms(2), held)).map((one) => one.leaseId);
      expect(await missed([])).toEqual([leaseId]);
      expect(await missed([leaseId])).toEqual([]);
      const event = { kind: "ready", leaseId, report: readyReport } as const;
      await advanceSession(store.db, { leaseId }, event, 3);
      expect(await missed([])).toEqual([]);
    });

    test("is renewed for the agent that holds it", async () => {
      const { leaseId, id } = await startingSession(store.db);
      expect(await renewSessions(store.db, terms(500, "b"), [leaseId])).toEqual([]);
      expect(await renewSessions(store.db, terms(500), [leaseId, "other"])).toEqual([leaseId]);
      expect(await findSession(store.db, id)).toMatchObject({ leaseExpiresAt: 1500 });
    });
  });

  describe("the end of a session", () => {
    test("by idleness waits for its calls, and for a call that comes at that moment", async () => {
      const { db } = store;
      const { id } = await readySession(db);
      const idle = async (now: number) =>
        (await advanceSession(db, { id }, { kind: "idle" }, now)).kind;
      const due = async (now: number) => (await dueSessions(db, { now })).map((one) => one.id);
      await renewSessions(db, terms(500, "a", 1e6), [(await findSession(db, id))!.leaseId!]);
      expect(await due(100_000)).toEqual([]);
      expect(await due(100_001)).toEqual([id]);
      const { leaseId } = await runningCall(db, id, 2);
      expect(await due(100_001)).toEqual([]);
      expect(await idle(100_001)).toBe("refused");
      await finishExecution(db, leaseId, result, 500);
      expect(await due(100_001)).toEqual([]);
      expect([await idle(100_001), await idle(100_500)]).toEqual(["refused", "changed"]);
      expect(await findSession(db, id)).toMatchObject({ reason: "idle" });
    });
  });

  test("a tenant alone leaves the last place of an agent to others, whose first session starts at once", async () => {
    const now = 20_000 * 86_400_000;
    for (const name of ["a", "b"]) await setLimits(store.db, name, noLimits, by(now));
    const status = new ScriptedAgent().status();
    const told = { ...status, agent: { ...status.agent, id: "a" }, sessions: [], free_sessions: 3 };
    await recordAgent(store.db, told, "t", now);
    const make = (tenant: string) =>
      created(store.db, { tenant, createdAt: now, expiresAt: now + 1e6 });
    const take = async (count: number) =>
      (await claimSessions(store.db, terms(now), count, offers))
        .map(({ tenant }) => tenant)
        .join("");
    for (let n = 0; n < 4; n++) await make("a");
    expect(await take(3)).toBe("aa");
    expect(await take(1)).toBe("");
    for (let n = 0; n < 2; n++) await make("b");
    expect(await take(1)).toBe("b");
  });

  test("pages show each session once, though several API processes make ids out of order", async () => {
    const idOf = (n: number) => `00000000-0000-7000-a000-${String(n).padStart(12, "0")}`;
    for (const n of [3, 1, 5, 2, 6, 4]) await created(store.db, { id: idOf(n) });
    const seen: string[] = [];
    for (let before: string | undefined; ; before = seen.at(-1)) {
      const page = await listSessions(handleOf(store.db), { before }, 2, 0);
      if (page.length === 0) break;
      seen.push(...page.map(({ id }) => id));
    }
    expect(seen).toEqual([6, 5, 4, 3, 2, 1].map(idOf));
  });

  test("a session is removed when it ended long ago, and not before its last call", async () => {
    const { db } = store;
    const { id } = await created(db);
    const call = await newCall(db, id);
    await remove(id);
    expect(await forgetSessions(db, 11, 10)).toBe(0);
    await removeExecutions(db, [call], 1);
    expect(await forgetSessions(db, 10, 10)).toBe(0);
    expect(await forgetSessions(db, 11, 10)).toBe(1);
  });

  test("no call stays open that comes while its session ends", async () => {
    const { db } = store;
    const ends = [{ kind: "delete" }, { kind: "lifetime" }] as const;
    for (let n = 0; n < 20; n++) {
      const { id } = await readySession(db, 1, { expiresAt: 5 });
      const call = () =>
        submitExecution(
          db,
          newExecution({ sessionId: id, context: "default", maxAttempts: 1 }),
          100,
        );
      await Promise.all([
        call(),
        claimCalls(db, terms(2), id),
        ...ends.map((event) => advanceSession(db, { id }, event, 9)),
        call(),
        claimCalls(db, terms(2), id),
      ]);
      const calls = await listExecutions(handleOf(db), { sessionId: id }, 10, 0);
      expect(calls.filter((one) => one.status === "queued")).toEqual([]);
      for (const one of calls.filter(({ status }) => status === "running"))
        expect(one.cancelRequested).toBe(true);
    }
  });

  describe("an open session", () => {
    test("is busy while a call waits or runs", async () => {
      const { id } = await created(store.db);
      const busy = async () => [...(await busySessions(handleOf(store.db), [id]))];
      expect(await busy()).toEqual([]);
      await newCall(store.db, id);
      expect(await busy()).toEqual([id]);
    });
  });
});

describe("calls", () => {
  useStore();

  test("never run two at once in a session, whatever writes", async () => {
    const { id } = await readySession(store.db);
    await runningCall(store.db, id);
    const other = await newCall(store.db, id);
    const sql = `update executions set status = 'running', attempt = 1, lease_id = 'l', agent_id = 'a',
    lease_expires_at = 9, started_at = 1 where id = '${other}'`;
    await expect(store.db.client.execute(sql)).rejects.toThrow("UNIQUE");
  });

  test("of an agent that has left are not leased", async () => {
    const { id } = await readySession(store.db);
    await newCall(store.db, id);
    await store.db.client
      .execute(`insert into agents values ('a', 'a', 'h', '0', '{}', '{}', 1, '{}', 0,
    '[]', '{}', '{}', 1, '[]', 1, null, 9)`);
    expect(await claimCalls(store.db, terms(3))).toEqual([]);
  });

  test("wait in their session, not in the queue", async () => {
    const { db } = store;
    const { id } = await readySession(db);
    const [a, b] = [await newCall(db, id), await newCall(db, id)];
    const job = newExecution();
    expect(await submitExecution(db, job, 1)).toEqual({ kind: "accepted", queuePosition: 1 });
    expect((await submitExecution(db, newExecution(), 1)).kind).toBe("full");
    const position = async (one: string) =>
      queuePosition(handleOf(db), (await findExecution(db, one))!);
    expect(await Promise.all([a, b, job.id].map(position))).toEqual([1, 2, 1]);
    const claimed = await claimNext(db, terms(9), { slots: 9, gpus: 0 }, offers);
    expect(claimed.map((one) => one.id)).toEqual([job.id]);
    await claimCalls(db, terms(9));
    expect(await readQueueStats(db)).toMatchObject({ pending: 0, running: 1 });
    expect((await readCounts(db)).oldestQueuedAt).toBeNull();
    expect((await db.client.execute(miscounted)).rows).toEqual([]);
    const { job: head } = await readChanges(
      db,
      { agents: [], executions: [], outputs: [], builds: [], sessions: [] },
      9,
    );
    expect(head).toBeNull();
  });

  test("are refused by a session that has ended, has 100 that wait, lacks the context or is another's", async () => {
    const { db } = store;
    const { id } = await created(db);
    const submit = async (
      columns: object = {},
      handle: Parameters<typeof submitExecution>[0] = db,
    ) => {
      const call = newExecution({ sessionId: id, context: "default", ...columns });
      return (await submitExecution(handle, call, 2)).kind;
    };
    expect(await submit({ context: "other" })).toBe("full");
    expect(await submit({}, handleOf(db, "b"))).toBe("full");
    expect([await submit(), await submit(), await submit()]).toEqual([
      "accepted",
      "accepted",
      "full",
    ]);
    await remove(id);
    expect(await submit()).toBe("full");
  });

  test("end without another try when their agent gives them back, stops or is lost", async () => {
    const { db } = store;
    const error = { type: "docker_error", message: "gone", phase: "startup" } as const;
    const events = [
      { kind: "release", error, retryAt: 9 },
      { kind: "leave" },
      { kind: "crash" },
    ] as const;
    const { id } = await readySession(db);
    for (const event of events) {
      const { leaseId } = await runningCall(db, id);
      const ended = await advance(db, { leaseId }, { ...event, leaseId }, 2);
      expect(ended).toMatchObject({ kind: "changed", execution: { status: "failed" } });
    }
    const letters = await db.client.execute("select 1 from dead_letters");
    expect(letters.rows, "calls are no dead letters").toEqual([]);
  });

  test("that wait longer than their queue_timeout end as timeout", async () => {
    const { id } = await created(store.db);
    const call = await newCall(store.db, id, { startBy: 1000 });
    await endOverdue(store.db, 1000);
    const ended = await findExecution(store.db, call);
    expect(ended).toMatchObject({
      status: "timeout",
      error: { message: "The session did not begin the call within its queue_timeout of 1 s." },
    });
  });

  test("lose the values of their environment when they have ended", async () => {
    const { db } = store;
    const { id } = await readySession(db);
    const call = await newCall(db, id, { callOptions: { env: { A: "b" }, restart: true } });
    const options = async () => (await submittedPayloads(db, [call])).get(call)?.call;
    expect(await options()).toEqual({ env: { A: "b" }, restart: true });
    const [leased] = await claimCalls(db, terms(2));
    await finishExecution(db, leased!.leaseId!, result, 5);
    expect(await options()).toEqual({ restart: true });
  });

  test("are listed by session; those about files only if asked for", async () => {
    const { id } = await created(store.db);
    const call = await newCall(store.db, id);
    const files = await newCall(store.db, id, { kind: "files" });
    const ids = async (filter: Parameters<typeof listExecutions>[1]) =>
      (await listExecutions(handleOf(store.db), filter, 10, 0)).map((one) => one.id);
    expect(await ids({ sessionId: id })).toEqual([call]);
    expect(await ids({ sessionId: id, kind: "files" })).toEqual([files]);
    expect(await ids({ sessionId: id, kind: "all" })).toEqual([files, call]);
    expect(await ids({ statuses: ["queued"] })).toEqual([call]);
    expect(await ids({ statuses: ["queued", "failed"], kind: "all" })).toEqual([files, call]);
    expect(await ids({})).toEqual([call]);
  });
});

const folder = tempFolder();
const startFile = await makeStart(folder);

/** Outcomes that the runs must reach; otherwise they would prove little. */
const mustBeSeen = [
  "created",
  "full",
  "claim",
  "claim again",
  "ready: ready",
  "release: queued",
  "leave: queued",
  "leave: agent_stopped",
  "crash: queued",
  "crash: agent_lost",
  "end: engine_lost",
  "delete: deleted",
  "expire: queued",
  "expire: agent_lost",
  "lifetime: lifetime",
  "idle: idle",
  "call",
  "call refused",
  "claim calls",
  "finish call changed",
  "finish call changed, late",
  "finish call refused",
  "release call changed",
  "cancel call changed",
];

test("sessions and their calls do what the state machines say, whatever happens in any order", async () => {
  const seen = new Set<string>();
  const steps = fc.array(anySessionStep, { minLength: 40, maxLength: 60, size: "max" });
  const property = fc.asyncProperty(steps, async (some) => {
    const world = await SessionWorld.open(startFile);
    try {
      for (const one of some) seen.add(await world.run(one));
    } finally {
      world.close();
    }
  });
  // The rarest of them comes about once in 200 runs.
  for (let round = 0; round < 20; round++) {
    await fc.assert(property, { numRuns: 100 });
    if (mustBeSeen.every((outcome) => seen.has(outcome))) break;
  }
  expect([...seen]).toEqual(expect.arrayContaining(mustBeSeen));
}, 300_000);
