import { describe, expect, test } from "vitest";
import { type WebhookType, webhookTypes } from "../../shared/wire/webhooks.ts";
import { cancelMembers } from "../jobs/batch-sql.ts";
import { advance, expireLeases } from "../jobs/lease.ts";
import type { ExecutionEvent } from "../jobs/rules.ts";
import { type NewExecution } from "../jobs/submit.ts";
import { endOverdue } from "../jobs/wait.ts";
import { removeExecution } from "../store/retention.ts";
import { by, handleOf, leaseJob, storeJob } from "../testing/temp-store.ts";
import { store, useStore } from "../testing/use-store.ts";
import { webhookBody } from "./rules.ts";
import {
  eventsAfter,
  fanOut,
  keepListening,
  keepWantedTypes,
  lastEvent,
  newEvents,
} from "./sql.ts";

useStore();

const error = { type: "value_error", message: "secret text", phase: "execution" } as const;

const submit = (columns?: Partial<NewExecution>) => storeJob(store.db, columns);
const claim = async (now = 1000) => (await leaseJob(store.db, { now, ttlMs: 1000 })).leaseId;

async function happen(event: ExecutionEvent & { leaseId: string }, now = 1500): Promise<void> {
  const { kind } = await advance(store.db, { leaseId: event.leaseId }, event, now);
  expect(kind).toBe("changed");
}

type Lease = { leaseId: string };
const complete = (status: "succeeded" | "failed" | "timeout" | "oom" | "cancelled") =>
  async function () {
    const outcome = { status, error: status === "succeeded" ? null : error, exitCode: null };
    await happen({ kind: "complete", leaseId: await claim(), ...outcome });
  };
/** The same end of two attempts; the second is final. */
const twice = (event: (lease: Lease) => ExecutionEvent & Lease) =>
  async function () {
    for (const now of [1000, 2000]) await happen(event({ leaseId: await claim(now) }), now + 500);
  };

const ways: Record<string, [WebhookType, (id: string) => Promise<unknown>]> = {
  "by its result": ["execution.succeeded", complete("succeeded")],
  "by a failure of its code": ["execution.failed", complete("failed")],
  "by its time limit": ["execution.timeout", complete("timeout")],
  "without memory": ["execution.oom", complete("oom")],
  "cancelled while it ran": ["execution.cancelled", complete("cancelled")],
  "cancelled in the queue": [
    "execution.cancelled",
    (id) => advance(store.db, { id }, { kind: "cancel" }, 1000),
  ],
  "cancelled with its batch": ["execution.cancelled", () => cancelMembers(store.db, "b", 1000)],
  "by its queue_timeout": ["execution.timeout", () => endOverdue(store.db, 5000)],
  "when its second lease expires": [
    "execution.failed",
    async () => {
      await claim(1000);
      await expireLeases(store.db, 3000);
      await claim(4000);
      await expireLeases(store.db, 6000);
    },
  ],
  "cancelled, when its lease expires": [
    "execution.cancelled",
    async (id) => {
      await claim(1000);
      await advance(store.db, { id }, { kind: "cancel" }, 1500);
      await expireLeases(store.db, 3000);
    },
  ],
  "when its engine fails twice": [
    "execution.failed",
    twice((lease) => ({ kind: "release", error, retryAt: 0, ...lease })),
  ],
  "when its agent crashes twice": [
    "execution.failed",
    twice((lease) => ({ kind: "crash", ...lease })),
  ],
  "when its agents leave while the code runs": [
    "execution.failed",
    async () => {
      for (const now of [1000, 2000]) {
        const leaseId = await claim(now);
        await happen({ kind: "start", leaseId }, now);
        await happen({ kind: "leave", leaseId }, now + 500);
      }
    },
  ],
};

const events = () => newEvents(store.db, { most: 100 });

describe("an execution that ends", () => {
  test.each(Object.entries(ways))("%s is exactly one event", async (_, [type, end]) => {
    await keepWantedTypes(store.db, webhookTypes);
    const id = await submit({ startBy: 5000, batchId: "b" });
    expect(await events()).toEqual([]);
    await end(id);
    await expireLeases(store.db, 9000);
    await endOverdue(store.db, 9000);
    expect(await events()).toMatchObject([{ executionId: id, type, callbackUrl: null }]);
  });

  test("is no event if no receiver wants it", async () => {
    const { length } = Object.keys(ways);
    await submit();
    await complete("succeeded")();
    await keepWantedTypes(store.db, ["execution.failed"]);
    await submit();
    await complete("succeeded")();
    expect(length).toBeGreaterThan(9);
    expect(await events()).toEqual([]);
    await submit();
    await complete("failed")();
    expect(await events()).toHaveLength(1);
    await keepWantedTypes(store.db, []);
    await submit();
    await complete("failed")();
    expect(await events()).toHaveLength(1);
  });

  test("keeps its event when its record is removed; the event has ids, status and metadata, no message", async () => {
    await keepWantedTypes(store.db, webhookTypes);
    const id = await submit({ metadata: { order: "é😀" }, batchId: null, traceparent: "00-a" });
    await complete("failed")();
    await removeExecution(store.db, id, 5000, by(5000));
    const { rows } = await store.db.client.execute(
      "select tenant, execution_id as executionId, type, data, created_at as createdAt from webhook_events",
    );
    const body = webhookBody(rows[0] as unknown as Parameters<typeof webhookBody>[0]);
    expect(JSON.parse(body)).toEqual({
      type: "execution.failed",
      timestamp: "1970-01-01T00:00:01.500Z",
      data: {
        job_id: id,
        tenant: "default",
        status: "failed",
        job_type: "default",
        attempt: 1,
        created_at: "1970-01-01T00:00:00.000Z",
        started_at: "1970-01-01T00:00:01.000Z",
        ended_at: "1970-01-01T00:00:01.500Z",
        exit_code: null,
        error: { type: "value_error", phase: "execution" },
        correlation_id: "correlation",
        metadata: { order: "é😀" },
        traceparent: "00-a",
        links: { record: `/executions/${id}`, result: `/jobs/${id}/result` },
      },
    });
  });
});

describe("while a client listens, an execution that ends", () => {
  const heard = async (after = 0) =>
    (await eventsAfter(store.db, { after, most: 100 })).map((one) => one.executionId);

  test("becomes an event that the sender never sees, until the listening time is over", async () => {
    expect(await keepListening(store.db, 1400, 1501)).toBe(1501);
    const id = await submit();
    await complete("succeeded")();
    expect(await heard()).toEqual([id]);
    expect(await events()).toEqual([]);
    const newest = await lastEvent(store.db);
    expect(await heard(newest)).toEqual([]);
    await store.db.client.execute("update tenants set listening_until = 1500");
    await submit();
    await complete("succeeded")();
    expect(await heard()).toEqual([id]);
    await store.db.client.execute("delete from webhook_events");
    await keepListening(store.db, 9000, 9000);
    const next = await submit();
    await complete("succeeded")();
    expect(await heard(newest)).toEqual([next]);
  });

  test("has a number that tells other tenants nothing, who cannot hear of it either", async () => {
    const other = handleOf(store.db, "b");
    await keepListening(store.db, 9000, 9000);
    expect(await lastEvent(other)).toBe(0);
    await submit();
    await complete("succeeded")();
    expect(await lastEvent(other)).toBe(0);
    expect(await eventsAfter(other, { after: 0, most: 100 })).toEqual([]);
  });

  test.each(["callback_url", "endpoint"])(
    "is also an event for the sender if there is a %s",
    async (which) => {
      await keepListening(store.db, 9000, 9000);
      if (which === "endpoint") await keepWantedTypes(store.db, ["execution.oom"]);
      const id = await submit(which === "endpoint" ? {} : { callbackUrl: "https://a.example/b" });
      await complete("oom")();
      expect(await heard()).toEqual([id]);
      expect(await events()).toMatchObject([{ executionId: id }]);
    },
  );

  test("the listening time is extended, never shortened, and written only when little of it is left", async () => {
    expect(await keepListening(store.db, 1000, 2000)).toBe(2000);
    expect(await keepListening(store.db, 1900, 2900)).toBe(2000);
    expect(await keepListening(store.db, 2001, 3000)).toBe(3000);
    await Promise.all([keepListening(store.db, 4000, 5000), keepListening(store.db, 3500, 4500)]);
    expect(await keepListening(store.db, 4999, 6000)).toBe(5000);
  });
});

describe("fanning out", () => {
  const named = (...names: string[]) => names.map((receiver) => ({ receiver, callbackUrl: null }));
  const deliveries = async () =>
    (await store.db.client.execute("select receiver from webhook_deliveries")).rows.map(
      (r) => r[0],
    );

  test("gives each receiver one delivery, also if two processes do it", async () => {
    await keepWantedTypes(store.db, webhookTypes);
    await submit();
    await complete("succeeded")();
    const [event] = await events();
    const fanned = [{ event: event!, receivers: named("a", "b") }];
    await Promise.all([fanOut(store.db, fanned, 1), fanOut(store.db, fanned, 2)]);
    expect(await events()).toEqual([]);
    expect(await deliveries()).toEqual(["a", "b"]);
  });

  test("drops an event that no receiver wants any more", async () => {
    await keepWantedTypes(store.db, webhookTypes);
    await submit();
    await complete("succeeded")();
    const [event] = await events();
    await fanOut(store.db, [{ event: event!, receivers: [] }], 1);
    const { rows } = await store.db.client.execute("select * from webhook_events");
    expect(rows).toEqual([]);
  });

  test("keeps an event without a receiver for whoever listened when it happened", async () => {
    await keepWantedTypes(store.db, webhookTypes);
    await keepListening(store.db, 9000, 9000);
    const id = await submit();
    await complete("succeeded")();
    const [event] = await events();
    await fanOut(store.db, [{ event: event!, receivers: [] }], 1);
    expect(await events()).toEqual([]);
    expect(await eventsAfter(store.db, { after: 0, most: 100 })).toMatchObject([
      { executionId: id },
    ]);
    expect(await deliveries()).toEqual([]);
  });
});

describe("of two tenants", () => {
  const listening = (tenant: string) => keepListening(handleOf(store.db, tenant), 9000, 9000);
  const heardBy = async (tenant: string) =>
    (await eventsAfter(handleOf(store.db, tenant), { after: 0, most: 100 })).map(
      (one) => one.executionId,
    );

  test("one that listens makes no events of the other's executions, and hears its own", async () => {
    await store.db.client.execute("insert into tenants (name, created_at) values ('b', 1)");
    await listening("b");
    await submit();
    await complete("succeeded")();
    const id = await submit({ tenant: "b" });
    await complete("succeeded")();
    await listening("default");
    expect([await heardBy("default"), await heardBy("b")]).toEqual([[], [id]]);
    const { rows } = await store.db.client.execute("select tenant from webhook_events");
    expect(rows).toHaveLength(1);
  });

  test("each delivery and dead letter has its execution's tenant, and an id that is a time", async () => {
    await keepWantedTypes(store.db, webhookTypes);
    await submit({ tenant: "b" });
    await complete("failed")();
    const receivers = [
      { receiver: "x", callbackUrl: null },
      { receiver: "y", callbackUrl: null },
    ];
    await fanOut(store.db, [{ event: (await events())[0]!, receivers }], 1600);
    const read = async (table: string) => {
      const { rows } = await store.db.client.execute(`select id, tenant from ${table} order by id`);
      return rows.map((row) => [row[0], row[1]]);
    };
    expect(await read("webhook_deliveries")).toEqual([
      [160_000, "b"],
      [160_001, "b"],
    ]);
    expect(await read("dead_letters")).toEqual([[150_000, "b"]]);
    for (const tenant of ["b", "b"]) await submit({ tenant, batchId: "batch" });
    await cancelMembers(store.db, "batch", 2000);
    const seqs = (await events()).map(({ seq }) => seq);
    expect(seqs).toEqual([200_000, 200_001]);
  });
});
