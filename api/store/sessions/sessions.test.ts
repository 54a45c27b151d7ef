import { readyReport, ScriptedAgent } from "../../testing/scripted-agent.ts";
import { describe, expect, test } from "vitest";
import {
  created,
  newCall,
  newSession,
  readySession,
  runningCall,
  startingSession,
  terms,
} from "../../testing/session-store.ts";
import { result } from "../../testing/store-result.ts";
import { by, handleOf, newExecution, noLimits, offers } from "../../testing/temp-store.ts";
import { miscounted } from "../../testing/tenant-uses.ts";
import { store, useStore } from "../../testing/use-store.ts";
import { finishExecution } from "../jobs/finish.ts";
import { listExecutions } from "../jobs/list.ts";
import { submitExecution } from "../jobs/submit.ts";
import { recordAgent } from "../agents/agents.ts";
import { setLimits } from "../tenants.ts";
import { advanceSession } from "./advance-session.ts";
import { changeSession } from "./change-session.ts";
import { claimCalls } from "./claim-calls.ts";
import { createSession } from "./create-session.ts";
import { forgetSessions } from "./forget-sessions.ts";
import { removeExecutions } from "../retention.ts";
import { claimSessions, dueSessions, renewSessions, undeliveredSessions } from "./session-lease.ts";
import { busySessions, findSession, listSessions } from "./sessions.ts";

useStore();

const remove = (id: string, now = 10) => advanceSession(store.db, { id }, { kind: "delete" }, now);

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
    const due = async (now: number) => (await dueSessions(db, now)).map((one) => one.id);
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
  const status = new ScriptedAgent("http://unused", "").status();
  const told = { ...status, agent: { ...status.agent, id: "a" }, sessions: [], free_sessions: 3 };
  await recordAgent(store.db, told, "t", now);
  const make = (tenant: string) =>
    created(store.db, { tenant, createdAt: now, expiresAt: now + 1e6 });
  const take = async (count: number) =>
    (await claimSessions(store.db, terms(now), count, offers)).map(({ tenant }) => tenant).join("");
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
      submitExecution(db, newExecution({ sessionId: id, context: "default", maxAttempts: 1 }), 100);
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
