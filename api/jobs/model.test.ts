import { eq } from "drizzle-orm";
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { tempFolder } from "../../shared/testing/test-file.ts";
import type { ExecutionError } from "../../shared/wire/errors.ts";
import { claimNext } from "../agents/claim.ts";
import { deadLetters } from "../store/schema.ts";
import { anyStep, makeStart, StoreWorld } from "../testing/store-world.ts";
import { newExecution, offers, openTempStore } from "../testing/temp-store.ts";
import { store, useOneStore } from "../testing/use-store.ts";
import { advance } from "./lease.ts";
import { type ExecutionEvent, type LeaseState, transition } from "./rules.ts";
import { type ExecutionRow, findExecution } from "./sql.ts";
import { submitExecution } from "./submit.ts";

const folder = tempFolder();
const startFile = await makeStart(folder);

/** Outcomes that the runs must reach; otherwise they would prove little. */
const mustBeSeen = [
  "accepted",
  "existing",
  "full",
  "claim",
  "claim again",
  "redeliver",
  "renew",
  "renew, some lost",
  ...["start", "log", "upload", "result", "release"].flatMap((what) =>
    [200, 403, 409].map((status) => `${what} ${status}`),
  ),
  "release 200 requeued",
  "expire queued",
  "expire failed",
  "expire cancelled",
  "cancel 200 cancelled",
  "cancel 200 running",
  "cancel 409 failed",
  "restart",
  "cut, nothing written",
  "cut, all written",
];

test("the store keeps its invariants under any events in any order", async () => {
  const seen = new Set<string>();
  const property = fc.asyncProperty(
    fc.array(anyStep, { minLength: 30, maxLength: 45, size: "max" }),
    async (steps) => {
      const world = await StoreWorld.open(startFile);
      try {
        for (const one of steps) {
          seen.add(await world.run(one));
        }
      } finally {
        world.close();
      }
    },
  );
  await fc.assert(property, { numRuns: 200 });
  expect([...seen]).toEqual(expect.arrayContaining(mustBeSeen));
}, 300_000);

describe("races", () => {
  useOneStore();

  const parallel = <T>(n: number, run: (i: number) => Promise<T>): Promise<T[]> =>
    Promise.all(Array.from({ length: n }, (_, i) => run(i)));

  test("20 claimers at once take each of 500 executions exactly once, oldest first", async () => {
    const ids = Array.from({ length: 500 }, () => newExecution());
    for (const execution of ids) await submitExecution(store.db, execution, 500);
    const taken = await parallel(20, async (i) => {
      const own: ExecutionRow[] = [];
      for (;;) {
        const terms = { agentId: `agent ${i}`, expiresAt: 10, now: 1 };
        const claimed = await claimNext(store.db, terms, { slots: 1 + (i % 7), gpus: 0 }, offers);
        if (claimed.length === 0) return own;
        own.push(...claimed);
      }
    });
    const all = taken.flat();
    expect(all.map(({ id }) => id).sort()).toEqual(ids.map(({ id }) => id).sort());
    expect(new Set(all.map(({ leaseId }) => leaseId)).size).toBe(500);
    for (const own of taken)
      expect(own.map(({ seq }) => seq)).toEqual(
        own.map(({ seq }) => seq).toSorted((a, b) => a - b),
      );
  });

  test("100 submissions at once into 10 free places store 10", async () => {
    const small = await openTempStore();
    const submitted = await parallel(100, () => submitExecution(small.db, newExecution(), 10));
    const positions = submitted.flatMap((one) =>
      one.kind === "accepted" ? [one.queuePosition] : [],
    );
    expect(positions).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    small.close();
  });

  const error: ExecutionError = { type: "killed", message: "", phase: "execution" };
  const expiresAt = 100;
  const kinds = ["succeed", "fail", "start", "release", "cancel", "expire", "renew"] as const;

  function eventOf(kind: (typeof kinds)[number], leaseId: string): ExecutionEvent {
    switch (kind) {
      case "succeed":
        return { kind: "complete", leaseId, status: "succeeded", error: null, exitCode: 0 };
      case "fail":
        return { kind: "complete", leaseId, status: "failed", error, exitCode: 1 };
      case "start":
        return { kind: "start", leaseId };
      case "release":
        return { kind: "release", leaseId, error, retryAt: 1000 };
      case "renew":
        return { kind: "renew", leaseId, expiresAt: 300 };
      case "cancel":
      case "expire":
        return { kind };
    }
  }

  function permutations<T>(items: T[]): T[][] {
    if (items.length < 2) return [items];
    return items.flatMap((item, i) =>
      permutations(items.toSpliced(i, 1)).map((rest) => [item, ...rest]),
    );
  }

  type Happening = { event: ExecutionEvent; now: number };

  /** The state after these events one by one, by the state machine. */
  function after(happenings: Happening[], start: LeaseState): LeaseState {
    return happenings.reduce((state, { event, now }) => {
      const result = transition(state, event, now);
      return result.ok ? { ...state, ...result.change } : state;
    }, start);
  }

  test("concurrent events on one execution end in a state that sequential events could reach", async () => {
    const racing = await openTempStore();
    const { db } = racing;
    const happening = fc.record({
      kind: fc.constantFrom(...kinds),
      now: fc.constantFrom(expiresAt - 1, expiresAt),
    });
    const atOnce = fc.uniqueArray(happening, {
      minLength: 2,
      maxLength: 4,
      selector: (h) => h.kind,
    });
    const property = fc.asyncProperty(atOnce, async (some) => {
      const { id } = newExecution();
      await submitExecution(db, newExecution({ id }), 1000);
      const terms = { agentId: "a", expiresAt, now: 1 };
      await claimNext(db, terms, { slots: 1, gpus: 0 }, offers);
      const leased = await findExecution(db, id);
      const leaseId = leased?.leaseId ?? "";
      const all = some.map(({ kind, now }) => ({ event: eventOf(kind, leaseId), now }));

      await Promise.all(all.map(({ event, now }) => advance(db, { id }, event, now)));

      const row = (await findExecution(db, id))!;
      expect(permutations(all).map((order) => after(order, leased!))).toContainEqual(row);
      const letters = await db.orm
        .select()
        .from(deadLetters)
        .where(eq(deadLetters.executionId, id));
      expect(letters).toHaveLength(row.status === "failed" ? 1 : 0);
    });
    await fc.assert(property, { numRuns: 300 });
    racing.close();
  });
});
