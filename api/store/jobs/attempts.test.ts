import type { Client, InStatement } from "@libsql/client";
import { beforeEach, expect, test } from "vitest";
import { limits } from "../../../shared/wire/limits.ts";
import type { Attempt } from "../../../shared/wire/attempt.ts";
import type { ExecutionEvent } from "../../domain/transition.ts";
import { readRecord, readRecords } from "../../jobs/read-records.ts";
import { ScriptedAgent } from "../../testing/scripted-agent.ts";
import { result } from "../../testing/store-result.ts";
import { newExecution, offers } from "../../testing/temp-store.ts";
import { store, useStore } from "../../testing/use-store.ts";
import { recordAgent } from "../agents/agents.ts";
import { database } from "../database.ts";
import { advance } from "./advance.ts";
import { claimNext } from "./claim.ts";
import { finishExecution } from "./finish.ts";
import { expireLeases } from "./lease.ts";
import { findExecution } from "./read.ts";
import { submitExecution } from "./submit.ts";

const agent = new ScriptedAgent("http://unused", "token");
const ttlMs = 1000;
const error = { type: "docker_error", message: 'no "image"', phase: "startup" } as const;

useStore();
let now: number;
beforeEach(async () => {
  now = 1;
  await recordAgent(store.db, agent.status(), "hash", now);
});

async function submit(): Promise<string> {
  const execution = newExecution();
  await submitExecution(store.db, execution, 10);
  return execution.id;
}

/** Leases the job, reports its start if `begins`, and returns the lease. */
async function take({
  begins = false,
  agentId = agent.id,
}: { begins?: boolean; agentId?: string } = {}): Promise<string> {
  const terms = { agentId, expiresAt: now + ttlMs, now };
  const [row] = await claimNext(store.db, terms, { slots: 1, gpus: 0 }, offers);
  const leaseId = row!.leaseId!;
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
    const id = await submit();
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
    const id = await submit();
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
    const id = await submit();
    const lease = await take();
    await advance(store.db, { id }, { kind: "cancel" }, now);
    await lose(lease, kind);
    const { status, attempts } = await record(id);
    expect(status).toBe("cancelled");
    expect(attempts).toMatchObject([{ attempt: 1, ended_at: at(now), outcome }]);
  },
);

test("the result of a job that failed is its attempt's, with its error", async () => {
  const id = await submit();
  const failure = { type: "value_error", message: "bad", phase: "execution" } as const;
  const failed = { ...result, status: "failed", exit_code: 1, error: failure } as const;
  await finishExecution(store.db, await take(), failed, now);
  expect(await attemptsOf(id)).toMatchObject([{ attempt: 1, outcome: "result", error: failure }]);
});

test("attempts that use no number are kept too, the latest of many", async () => {
  const id = await submit();
  for (let n = 0; n < limits.lostAttemptsMax + 3; n++) await lose(await take(), "leave");
  await take();
  const attempts = (await attemptsOf(id))!;
  expect(attempts).toHaveLength(limits.lostAttemptsMax + 1);
  expect(attempts.map(({ attempt }) => attempt)).toEqual(attempts.map(() => 1));
  expect(attempts.at(0)?.claimed_at).toBe(at(1 + 3 * 10));
  expect(attempts.at(-1)).toMatchObject({ outcome: null, ended_at: null });
});

test("a job that succeeds at its first attempt neither reads nor writes lost attempts, except in a record with view=all", async () => {
  const sent: string[] = [];
  const db = database(recording(store.db.client, sent));
  const execution = newExecution();
  await submitExecution(db, execution, 10);
  const terms = { agentId: agent.id, expiresAt: now + ttlMs, now };
  const [row] = await claimNext(db, terms, { slots: 1, gpus: 0 }, offers);
  const leaseId = row!.leaseId!;
  await advance(db, { leaseId }, { kind: "start", leaseId }, now);
  await finishExecution(db, leaseId, result, now);
  const ended = (await findExecution(db, execution.id))!;
  await readRecord(db, ended, "full");
  await readRecords(db, [ended], { fields: ["status", "attempt"] });
  expect(sent.filter((text) => text.includes("lost_attempts"))).toEqual([]);

  await readRecord(db, ended, "all");
  await readRecords(db, [ended], { fields: ["attempts"] });
  expect(sent.filter((text) => text.includes("lost_attempts"))).toHaveLength(2);
});

/** A client that records the text of every statement. */
function recording(client: Client, sent: string[]): Client {
  const note = (statement: InStatement) =>
    sent.push(typeof statement === "string" ? statement : statement.sql);
  return Object.assign(Object.create(client) as Client, {
    execute: async (statement: InStatement) => {
      note(statement);
      return client.execute(statement);
    },
    batch: async (statements: InStatement[], mode: "write") => {
      statements.forEach(note);
      return client.batch(statements, mode);
    },
  });
}
