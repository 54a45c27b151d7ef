import { describe, expect, test } from "vitest";
import { created, newCall, readySession, runningCall, terms } from "../../testing/session-store.ts";
import { result } from "../../testing/store-result.ts";
import { handleOf, newExecution, offers } from "../../testing/temp-store.ts";
import { miscounted } from "../../testing/tenant-uses.ts";
import { store, useStore } from "../../testing/use-store.ts";
import { readChanges } from "../changes.ts";
import { advance } from "../jobs/advance.ts";
import { claimNext } from "../jobs/claim.ts";
import { finishExecution } from "../jobs/finish.ts";
import { submittedPayloads } from "../jobs/lease.ts";
import { listExecutions } from "../jobs/list.ts";
import { endOverdue } from "../jobs/overdue.ts";
import { findExecution, queuePosition } from "../jobs/read.ts";
import { submitExecution } from "../jobs/submit.ts";
import { readCounts } from "../statistics/counts.ts";
import { readQueueStats } from "../statistics/queue.ts";
import { advanceSession } from "./advance-session.ts";
import { claimCalls } from "./claim-calls.ts";

useStore();

const remove = (id: string, now = 10) => advanceSession(store.db, { id }, { kind: "delete" }, now);

describe("calls", () => {
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
