import { isDeepStrictEqual } from "node:util";
import * as fc from "fast-check";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { InStatement } from "@libsql/client";
import { database, type Database } from "../store/database.ts";
import { firstIdAt } from "../store/retention.ts";
import {
  handleOf,
  leaseJob,
  newExecution,
  openIn,
  openTempStore,
  type TempStore,
} from "../testing/temp-store.ts";
import {
  type BatchItem,
  cancelMembers,
  findBatch,
  forgetBatches,
  type NewBatch,
  type StoredBatch,
  submitBatch,
} from "./batch-sql.ts";
import { listExecutions } from "./executions.ts";
import type { LeasedRow } from "./sql.ts";
import { type NewExecution, submitExecution } from "./submit.ts";

const most = 1000;
let store: TempStore;
beforeEach(async () => {
  store = await openTempStore();
});
afterEach(() => store.close());

function batchOf(executions: NewExecution[], changes: Partial<NewBatch> = {}): NewBatch {
  const items = executions.map((execution, n) => ({ n, execution, isBlocked: false }));
  const key = { keyId: null, idempotencyKey: null, submissionHash: "batch" };
  return { id: "batch", createdAt: 5, isAtomic: false, ...key, items, ...changes };
}

async function ranks(): Promise<unknown[]> {
  const sql = "select job_type, tenant, turn, rank from executions order by seq";
  return (await store.db.client.execute(sql)).rows.map((row) =>
    Array.from({ length: 4 }, (_, i) => row[i]),
  );
}

test("jobs of a batch get the turns and ranks that they would get if submitted one after the other", async () => {
  const shared = { tenant: "a" };
  const jobs = (): NewExecution[] =>
    ["x", "y", "x", "x", "z", "y"].map((jobType, n) =>
      newExecution({ ...shared, jobType, priority: n % 3 }),
    );
  const fronts = "insert into queue_fronts (job_type, turn) values ('x', 4), ('y', 9), ('z', 2)";
  await store.db.client.execute(fronts);
  for (const execution of jobs()) await submitExecution(store.db, execution, most);
  for (const execution of jobs()) await submitExecution(store.db, execution, most);
  const expected = await ranks();

  store.close();
  store = await openTempStore();
  await store.db.client.execute(fronts);
  await submitBatch(store.db, batchOf(jobs(), shared), most);
  await submitBatch(store.db, batchOf(jobs(), { ...shared, id: "next" }), most);
  expect(await ranks()).toEqual(expected);
});

test.each([1, 2, 3, 4])(
  "after the first job that has no room in bytes none is accepted, %i at once",
  async (atOnce) => {
    await store.db.client.execute(
      "insert into tenants (name, max_stored_bytes, created_at) values ('a', 4000, 0)",
    );
    const codes = [10, 5000, 10, 10].map((bytes) => new Uint8Array(bytes).fill(35));
    const batch = batchOf(codes.map((code) => newExecution({ tenant: "a", code })));
    const { outcome } = await submitBatch(handleOf(store.db, "a"), batch, most, atOnce);
    expect(outcome.map(({ isAccepted }) => isAccepted)).toEqual([true, false, false, false]);
  },
);

test("a batch without members is forgotten after the retention time", async () => {
  await submitBatch(store.db, batchOf([newExecution()]), most);
  await submitBatch(store.db, batchOf([newExecution()], { id: "full" }), 0);
  await forgetBatches(store.db, 6, 10);
  expect(await findBatch(store.db, "batch")).toMatchObject({ id: "batch" });
  expect(await findBatch(store.db, "full")).toBeUndefined();
});

test("the cancel of a batch ends its members in pieces, and asks the agent of one that was leased in between", async () => {
  const members = Array.from({ length: 250 }, () => newExecution());
  await submitBatch(store.db, batchOf(members), most);
  const { client } = store.db;
  const pieces: number[] = [];
  let leased: LeasedRow | undefined;
  const batch = async (statements: InStatement[]) => {
    const results = await client.batch(statements, "write");
    pieces.push(results[0]!.rows.length);
    leased ??= await leaseJob(store.db);
    return results;
  };
  const observed = database(Object.assign(Object.create(client) as typeof client, { batch }));
  const changed = await cancelMembers(observed, "batch", 9);
  expect(pieces).toEqual([100, 100, 49]);
  expect(new Set(changed.map(({ id }) => id))).toEqual(new Set(members.map(({ id }) => id)));
  const { counts } = (await findBatch(store.db, "batch"))!;
  expect(Object.fromEntries(counts)).toEqual({ cancelled: 249, running: 1 });
  const asked = changed.filter(({ status }) => status === "running");
  expect(asked).toMatchObject([{ id: leased?.id, cancelRequested: true }]);
});

test.each([3, 1500])(
  "a list by time has what was created since, also with a clock that is ahead and if it was stored late, beside %i jobs that came after",
  async (count) => {
    const at = (createdAt: number, n = 0) => {
      const id = `${firstIdAt(createdAt)}-7000-8000-${String(n).padStart(12, "0")}`;
      return newExecution({ id, createdAt });
    };
    const [time, later] = [1_000_000, 1_030_000];
    const [ahead, late] = [at(time + 2), at(time)];
    for (const job of [at(time - 9), ahead, at(time - 1)])
      await submitExecution(store.db, job, 5000);
    const after = Array.from({ length: count }, (_, n) => at(later, n));
    await submitBatch(store.db, batchOf(after, { createdAt: later }), 5000);
    await submitExecution(store.db, late, 5000);
    const found = await listExecutions(handleOf(store.db), { createdAfter: time }, 5000, 0);
    const expected = [late, ...after.toReversed(), ahead].map(({ id }) => id);
    expect(found.map(({ id }) => id)).toEqual(expected);
  },
);

describe("batches of two tenants at two processes", () => {
  interface Job {
    id: string;
    tenant: string;
    key: string | null;
    hash: string;
    batch: string;
    status: string;
  }
  type Stored = Pick<StoredBatch, "id" | "submissionHash" | "outcome">;
  /** What the store is to contain. */
  interface State {
    jobs: Job[];
    batches: (Stored & { tenant: string; key: string | null })[];
  }
  const maxQueued = 7;

  const answerOf = ({ id, submissionHash, outcome }: Stored): Stored => ({
    id,
    submissionHash,
    outcome,
  });

  /** What a submission does, in plain code. */
  function submitted(state: State, tenant: string, batch: NewBatch): [State, Stored] {
    const { id, idempotencyKey: key, submissionHash, isAtomic } = batch;
    const own = state.batches.filter((one) => one.tenant === tenant);
    const held = own.find((one) => one.id === id || (key !== null && one.key === key));
    if (held) return [state, answerOf(held)];
    const holderOf = ({ execution: { idempotencyKey = null } }: BatchItem) =>
      state.jobs.find(
        (job) => job.tenant === tenant && job.key !== null && job.key === idempotencyKey,
      );
    const isHeldSame = (item: BatchItem) => holderOf(item)?.hash === item.execution.submissionHash;
    const fresh = batch.items.filter((item) => !item.isBlocked && !holderOf(item));
    const room = maxQueued - state.jobs.filter(({ status }) => status === "queued").length;
    const areAll = fresh.length + batch.items.filter(isHeldSame).length === batch.items.length;
    const fits = !isAtomic || (areAll && fresh.length <= room);
    const made = fits ? fresh.slice(0, room) : [];
    const outcome = batch.items.map((item) => {
      const { n, execution } = item;
      const isAccepted = made.includes(item);
      return {
        n,
        isAccepted,
        id: isAccepted ? execution.id : (holderOf(item)?.id ?? null),
        isRemoved: false,
        isSame: isAccepted ? (execution.idempotencyKey ?? null) !== null : isHeldSame(item),
      };
    });
    const answer = { id, submissionHash, outcome };
    const isRefused = isAtomic && outcome.some((one) => !one.isAccepted && !one.isSame);
    if (isRefused) return [state, answer];
    const jobs = made.map(
      ({ execution: { id: job, idempotencyKey = null, submissionHash: hash } }) => ({
        id: job,
        tenant,
        key: idempotencyKey,
        hash,
        batch: id,
        status: "queued",
      }),
    );
    const batches = [...state.batches, { ...answer, tenant, key }];
    return [{ jobs: [...state.jobs, ...jobs], batches }, answer];
  }

  function cancelled(state: State, tenant: string, id: string): [State, string[]] {
    const isMember = (job: Job) =>
      job.tenant === tenant && job.batch === id && job.status === "queued";
    const jobs = state.jobs.map((job) => (isMember(job) ? { ...job, status: "cancelled" } : job));
    return [{ ...state, jobs }, state.jobs.filter(isMember).map((job) => job.id)];
  }

  const inOrderOfIds = <T extends { id: string }>(all: T[]): T[] =>
    [...all].sort((one, other) => (one.id < other.id ? -1 : 1));
  const shown = ({ jobs, batches }: State, answers: unknown[]) => ({
    jobs: inOrderOfIds(jobs),
    batches: batches.map(({ id }) => id).sort(),
    answers,
  });
  async function stored(): Promise<Omit<ReturnType<typeof shown>, "answers">> {
    const { client } = store.db;
    const jobs = await client.execute(
      "select id, tenant, idempotency_key as key, submission_hash as hash, batch_id as batch, status from executions",
    );
    const kept = await client.execute("select id from batches order by id");
    return {
      jobs: inOrderOfIds(
        jobs.rows.map(
          ({ id, tenant: owner, key: own, hash: its, batch, status }) =>
            ({ id, tenant: owner, key: own, hash: its, batch, status }) as Job,
        ),
      ),
      batches: kept.rows.map(({ id }) => id as string).sort(),
    };
  }

  const tenant = fc.constantFrom("a", "b");
  const key = fc.constantFrom(null, "k", "l", "m");
  const hash = fc.constantFrom("1", "2");
  const anyItem = fc.record({ key, hash, isBlocked: fc.nat(9).map((n) => n === 0) });
  const anyStep = fc.oneof(
    fc.record({
      tenant,
      key,
      hash,
      isAtomic: fc.boolean(),
      // Within a batch, the caller leaves out repeated keys.
      items: fc.uniqueArray(anyItem, {
        minLength: 1,
        maxLength: 5,
        selector: (item) => item.key ?? Symbol("none"),
      }),
    }),
    fc.record({ tenant, cancels: fc.nat(5) }),
  );

  test("do what plain code does, in one order or the other", async () => {
    const seen = new Set<string>();
    let made = 0;
    const pairs = fc.array(fc.tuple(anyStep, fc.option(anyStep)), { minLength: 4, maxLength: 10 });
    const property = fc.asyncProperty(pairs, async (steps) => {
      store.close();
      store = await openTempStore();
      const other = database(await openIn(store.folder));
      let state: State = { jobs: [], batches: [] };

      /** A step at a process, and in plain code. */
      const bind = (step: typeof anyStep extends fc.Arbitrary<infer S> ? S : never) => {
        if ("cancels" in step) {
          const id = state.batches[step.cancels]?.id ?? "unknown";
          return {
            run: async (db: Database) =>
              (await cancelMembers(handleOf(db, step.tenant), id, 9)).map((one) => one.id),
            plain: (before: State) => cancelled(before, step.tenant, id),
          };
        }
        const items = step.items.map(({ isBlocked, ...item }, n) => {
          const columns = { idempotencyKey: item.key, submissionHash: item.hash };
          return { n, isBlocked, execution: newExecution(columns) };
        });
        const { key: idempotencyKey, hash: submissionHash, isAtomic } = step;
        const id = `batch ${++made}`;
        const batch = batchOf([], { id, idempotencyKey, submissionHash, isAtomic, items });
        return {
          run: async (db: Database) =>
            answerOf(
              await submitBatch(handleOf(db, step.tenant), batch, maxQueued, (made % 3) + 1),
            ),
          plain: (before: State) => submitted(before, step.tenant, batch),
        };
      };

      try {
        for (const [one, another] of steps) {
          const first = bind(one);
          // The same again, as after an answer that was lost.
          const second = another ? bind(another) : first;
          const answers = await Promise.all([first.run(store.db), second.run(other)]);
          const [afterFirst, a] = first.plain(state);
          const [inOrder, b] = second.plain(afterFirst);
          const [afterSecond, c] = second.plain(state);
          const [inOther, d] = first.plain(afterSecond);
          const found = { ...(await stored()), answers };
          const expected = [shown(inOrder, [a, b]), shown(inOther, [d, c])];
          const isFirst = isDeepStrictEqual(found, expected[0]);
          expect(found).toEqual(expected[isFirst ? 0 : 1]);
          // Which of the two comes first depends on the machine.
          if (!isDeepStrictEqual(expected[0], expected[1])) seen.add("an order that counts");
          for (const job of inOrder.jobs) seen.add(job.status);
          if (inOrder.jobs.length === maxQueued) seen.add("full");
          state = isFirst ? inOrder : inOther;
        }
      } finally {
        other.client.close();
      }
    });
    await fc.assert(property, { numRuns: 60 });
    expect([...seen]).toEqual(
      expect.arrayContaining(["queued", "cancelled", "full", "an order that counts"]),
    );
  }, 120_000);
});
