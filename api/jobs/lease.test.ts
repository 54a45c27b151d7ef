import { readFileSync } from "node:fs";
import type { InStatement } from "@libsql/client";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { concatBytes } from "../../shared/bytes.ts";
import { writeJson } from "../../shared/json.ts";
import type { Attempt } from "../../shared/wire/executions.ts";
import { limits } from "../../shared/wire/limits.ts";
import { recordAgent } from "../agents/agents.ts";
import { claimNext } from "../agents/claim.ts";
import { database } from "../store/database.ts";
import { ScriptedAgent } from "../testing/scripted-agent.ts";
import { openPlanner, type Planner, recording, sqlOf } from "../testing/statements.ts";
import { result } from "../testing/store-model.ts";
import {
  handleOf,
  leasedJob,
  leaseJob,
  newExecution,
  offers,
  openIn,
  storeJob,
} from "../testing/temp-store.ts";
import { store, useOneStore, useStore } from "../testing/use-store.ts";
import { deadLetterStats } from "./executions.ts";
import { advance, expireLeases, finishExecution, renewLeases, type Result } from "./lease.ts";
import { readResultPart, readSmallOutput, resultLengths } from "./output.ts";
import { readRecord, readRecords, toRecord } from "./read.ts";
import type { ExecutionEvent } from "./rules.ts";
import { findExecution, withPayload } from "./sql.ts";
import { type NewExecution, submitExecution } from "./submit.ts";

describe("attempts", () => {
  const agent = new ScriptedAgent("http://unused", "token");
  const ttlMs = 1000;
  const error = { type: "docker_error", message: 'no "image"', phase: "startup" } as const;

  useStore();
  let now: number;
  beforeEach(async () => {
    now = 1;
    await recordAgent(store.db, agent.status(), "hash", now);
  });

  /** Leases the job, reports its start if `begins`, and returns the lease. */
  async function take({
    begins = false,
    agentId = agent.id,
  }: { begins?: boolean; agentId?: string } = {}): Promise<string> {
    const { leaseId } = await leaseJob(store.db, { agentId, ttlMs, now });
    now += 5;
    if (begins) await advance(store.db, { leaseId }, { kind: "start", leaseId }, now);
    now += 5;
    return leaseId;
  }

  type Ending = "release" | "leave" | "crash" | "expire";

  /** Ends a lease without a result. */
  async function lose(leaseId: string, kind: Ending): Promise<void> {
    if (kind === "expire") {
      now += ttlMs;
      await expireLeases(store.db, now);
    } else {
      const event: ExecutionEvent =
        kind === "release" ? { kind, leaseId, error, retryAt: now } : { kind, leaseId };
      const { kind: what } = await advance(store.db, { leaseId }, event, now);
      if (what !== "changed") throw new Error(`${kind}: ${what}`);
    }
  }

  async function record(id: string) {
    return readRecord(store.db, (await findExecution(store.db, id))!, "all");
  }

  const attemptsOf = async (id: string): Promise<Attempt[] | undefined> =>
    (await record(id)).attempts;

  const at = (ms: number): string => new Date(ms).toISOString();

  test.each([
    ["release", { outcome: "released", error }, 11],
    ["leave", { outcome: "agent_stopped", error: null }, 11],
    ["crash", { outcome: "agent_crashed", error: null }, 11],
    ["expire", { outcome: "lease_expired", error: null }, 11 + ttlMs],
  ] as const)(
    "the record of a job that lost an attempt by %s shows it, then the next one",
    async (kind, ending, endedMs) => {
      const id = await storeJob(store.db);
      expect(await attemptsOf(id)).toEqual([]);
      const first = {
        attempt: 1,
        agent_id: agent.id,
        agent: "scripted",
        claimed_at: at(1),
        code_started_at: at(6),
        ended_at: null,
        outcome: null,
        error: null,
      };
      const lease = await take({ begins: true });
      expect(await attemptsOf(id)).toEqual([first]);
      await lose(lease, kind);
      const lost = { ...first, ended_at: at(endedMs), ...ending };
      expect(await attemptsOf(id)).toEqual([lost]);

      const again = await take({ agentId: "forgotten" });
      const second = {
        ...first,
        attempt: 2,
        agent_id: "forgotten",
        agent: null,
        claimed_at: at(endedMs),
        code_started_at: null,
      };
      expect(await attemptsOf(id)).toEqual([lost, second]);
      await finishExecution(store.db, again, result, now);
      expect(await attemptsOf(id)).toEqual([
        lost,
        { ...second, ended_at: at(now), outcome: "result" },
      ]);
    },
  );

  test.each([
    ["release", "released", error],
    ["crash", "agent_crashed", null],
    ["expire", "lease_expired", null],
  ] as const)(
    "an attempt whose %s ends the job is in its record once",
    async (kind, outcome, why) => {
      const id = await storeJob(store.db);
      await lose(await take(), kind);
      await lose(await take(), kind);
      const { status, attempts } = await record(id);
      expect(status).toBe("failed");
      expect(attempts).toMatchObject([
        { attempt: 1, outcome, error: why },
        { attempt: 2, outcome, error: why, ended_at: at(now) },
      ]);
    },
  );

  test.each([
    ["release", "released"],
    ["leave", "agent_stopped"],
    ["crash", "agent_crashed"],
    ["expire", "lease_expired"],
  ] as const)(
    "an attempt that ends by %s after a cancel is in the record of the cancelled job",
    async (kind, outcome) => {
      const id = await storeJob(store.db);
      const lease = await take();
      await advance(store.db, { id }, { kind: "cancel" }, now);
      await lose(lease, kind);
      const { status, attempts } = await record(id);
      expect(status).toBe("cancelled");
      expect(attempts).toMatchObject([{ attempt: 1, ended_at: at(now), outcome }]);
    },
  );

  test("the result of a job that failed is its attempt's, with its error", async () => {
    const id = await storeJob(store.db);
    const failure = { type: "value_error", message: "bad", phase: "execution" } as const;
    const failed = { ...result, status: "failed", exit_code: 1, error: failure } as const;
    await finishExecution(store.db, await take(), failed, now);
    expect(await attemptsOf(id)).toMatchObject([{ attempt: 1, outcome: "result", error: failure }]);
  });

  test("attempts that use no number are kept too, the latest of many", async () => {
    const id = await storeJob(store.db);
    for (let n = 0; n < limits.lostAttemptsMax + 3; n++) await lose(await take(), "leave");
    await take();
    const attempts = (await attemptsOf(id))!;
    expect(attempts).toHaveLength(limits.lostAttemptsMax + 1);
    expect(attempts.map(({ attempt }) => attempt)).toEqual(attempts.map(() => 1));
    expect(attempts.at(0)?.claimed_at).toBe(at(1 + 3 * 10));
    expect(attempts.at(-1)).toMatchObject({ outcome: null, ended_at: null });
  });

  test("a job that succeeds at its first attempt neither reads nor writes lost attempts, except in a record with view=all", async () => {
    const sent: InStatement[] = [];
    const db = database(recording(store.db.client, sent));
    const { id, leaseId } = await leasedJob(db);
    await advance(db, { leaseId }, { kind: "start", leaseId }, now);
    await finishExecution(db, leaseId, result, now);
    const ended = (await findExecution(db, id))!;
    await readRecord(db, ended, "full");
    await readRecords(db, [ended], { fields: ["status", "attempt"] });
    expect(sent.filter((one) => sqlOf(one).includes("lost_attempts"))).toEqual([]);

    await readRecord(db, ended, "all");
    await readRecords(db, [ended], { fields: ["attempts"] });
    expect(sent.filter((one) => sqlOf(one).includes("lost_attempts"))).toHaveLength(2);
  });
});

describe("finish", () => {
  useOneStore();

  async function finishedWith(part: Partial<Result>, given: Partial<NewExecution> = {}) {
    const { leaseId } = await leasedJob(store.db, given);
    const ended = await finishExecution(store.db, leaseId, { ...result, ...part }, 2);
    if (ended.kind !== "changed") throw new Error(`not finished: ${ended.kind}`);
    return withPayload(store.db, ended.execution);
  }

  const utf8 = (text: string): Uint8Array => new TextEncoder().encode(text);

  test("streams come back byte for byte", async () => {
    const bytes = Uint8Array.from({ length: 1024 * 1024 }, (_, i) => i);
    const { payload } = await finishedWith({ stdout: bytes, stderr: concatBytes([bytes, bytes]) });
    expect(payload.stdout).toEqual(bytes);
    expect(payload.stderr).toEqual(concatBytes([bytes, bytes]));
  });

  test("everything in a result is stored", async () => {
    const full = await finishedWith({ output: utf8('{"pi":3.10,"big":12345678901234567890}') });
    const record = toRecord(full, "full");
    expect(record).toMatchObject({
      status: "succeeded",
      exit_code: 0,
      error: null,
      duration_ms: 1,
      timing: result.timing,
      resource_usage: result.resource_usage,
      job_ref: result.job_ref,
      container_runtime: "runsc",
      stdout_truncated: false,
      stderr_truncated: true,
    });
    expect(writeJson(record.output)).toBe('{"pi":3.10,"big":12345678901234567890}');
  });

  /** Bytes that this process has read so far, from its caches or the disk. */
  const bytesRead = (): number =>
    Number(/^rchar: (\d+)/.exec(readFileSync("/proc/self/io", "utf8"))?.[1]);

  test("pieces of a result are read without what the job was given, however large that is", async () => {
    const mib = 1024 * 1024;
    const given = { input: new Uint8Array(16 * mib), code: new Uint8Array(16 * mib) };
    const stdout = utf8("out");
    const { execution } = await finishedWith({ stdout, stderr: stdout, output: stdout }, given);
    // A connection of its own, which has no page in its cache.
    const db = database(await openIn(store.folder));
    const before = bytesRead();
    const { id } = execution;
    for (const stream of ["stdout", "stderr"] as const)
      expect(await readResultPart(db, id, stream, { offset: 0, length: 100 })).toEqual(stdout);
    expect(await resultLengths(db, id)).toEqual({ stdout: 3, stderr: 3 });
    expect(await readSmallOutput(db, id, 100)).toEqual(stdout);
    expect(bytesRead() - before).toBeLessThan(mib);
    db.client.close();
  });
});

describe("lease", () => {
  useOneStore();

  test("a renewal writes nothing while it would give less than a hundredth of the lease's time", async () => {
    const job = await leasedJob(store.db);
    const leasedUntil = job.leaseExpiresAt!;
    const renewAfter = async (ms: number) => {
      const [now, expiresAt] = [1 + ms, leasedUntil + ms];
      const [lease] = await renewLeases(store.db, { agentId: "a", expiresAt, now }, [job.leaseId]);
      expect(lease).toEqual({ leaseId: job.leaseId, cancelRequested: false, followedUntil: null });
      return (await findExecution(store.db, job.id))?.leaseExpiresAt;
    };
    expect(await renewAfter(9)).toBe(leasedUntil);
    expect(await renewAfter(11)).toBe(leasedUntil + 11);
  });
});

describe("expire", () => {
  useStore();

  test("any number of leases that expire together cost two database calls", async () => {
    const { db } = store;
    for (let n = 0; n < 20; n++) await submitExecution(db, newExecution(), 100);
    const terms = { agentId: "a", expiresAt: 10, now: 1 };
    await claimNext(db, terms, { slots: 20, gpus: 0 }, offers);
    let calls = 0;
    const { client } = db;
    const [execute, batch] = [client.execute.bind(client), client.batch.bind(client)];
    client.execute = (statement: Parameters<typeof execute>[0]) => (calls++, execute(statement));
    client.batch = (...args) => (calls++, batch(...args));
    expect(await expireLeases(db, 10)).toHaveLength(20);
    expect(calls).toBeLessThanOrEqual(2);
    expect(await expireLeases(db, 10)).toEqual([]);
  });
});

describe("dead letters", () => {
  let planner: Planner;
  beforeEach(async () => {
    planner = await openPlanner();
  });
  afterEach(() => planner.close());

  /** Ends a job of a tenant before its start. */
  async function fail(tenant: string, type: "timeout" | "value_error", at: number): Promise<void> {
    const { db } = planner;
    const id = await storeJob(db, { tenant });
    const error = { type, message: "", phase: "startup" } as const;
    await db.client.execute({
      sql: "update executions set status = ?, ended_at = ?, error = ? where id = ?",
      args: [type === "timeout" ? type : "failed", at, JSON.stringify(error), id],
    });
  }

  test("dead letters are counted for one tenant or for all together, in the order of an index", async () => {
    await fail("a", "timeout", 1000);
    for (const tenant of ["a", "b", "b"]) await fail(tenant, "value_error", 2000);
    const stats = (tenant: string) => deadLetterStats(handleOf(planner.db, tenant));
    const plans = await planner.plansOf(async () => {
      expect(await stats("b")).toEqual({ byType: new Map([["value_error", 2]]), oldest: 2000 });
      const all = { timeout: 1, value_error: 3 };
      expect(await stats("*")).toEqual({ byType: new Map(Object.entries(all)), oldest: 1000 });
    });
    expect(plans.filter((step) => step.includes("TEMP B-TREE"))).toEqual([]);
  });
});
