import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { deleteDeadLetter, listDeadLetters } from "../jobs/executions.ts";
import { advance, expireLeases, finishExecution } from "../jobs/lease.ts";
import { submitExecution } from "../jobs/submit.ts";
import { success } from "../testing/scripted-agent.ts";
import { result } from "../testing/store-model.ts";
import { by, leaseJob, newExecution } from "../testing/temp-store.ts";
import { store, useStore } from "../testing/use-store.ts";
import { familiesText, phaseBoundsMs, readCounts } from "./metrics.ts";

describe("counts", () => {
  useStore();

  const error = { type: "value_error", message: "", phase: "execution" } as const;

  async function claim(now: number, expiresAt = now + 1000): Promise<string> {
    return (await leaseJob(store.db, { now, ttlMs: expiresAt - now })).leaseId;
  }

  async function end(leaseId: string, now: number, executionMs: number, failed = false) {
    const timing = { ...success.timing, execution_ms: executionMs };
    const own = { timing, hash: leaseId, ...(failed && { status: "failed" as const, error }) };
    return finishExecution(store.db, leaseId, { ...result, ...own }, now);
  }

  /** The totals, as an object of "name job_type label": n. */
  async function totals(): Promise<Record<string, number>> {
    const rows = (await readCounts(store.db)).totals;
    return Object.fromEntries(
      rows.map(({ name, jobType, label, n }) => [`${name} ${jobType} ${label}`.trim(), n]),
    );
  }

  test("each ended execution is counted once, by job type and status, with the time of each phase", async () => {
    for (const executionMs of [5, 6, 7, 4_000_000]) {
      await submitExecution(store.db, newExecution({ createdAt: 70 }), 10);
      const lease = await claim(100);
      await end(lease, 200, executionMs);
      await end(lease, 200, executionMs);
    }
    expect(await totals()).toEqual({ "executions default succeeded": 4, dead_letters: 0 });
    const { durations } = await readCounts(store.db);
    const of = (phase: string) =>
      durations.filter((row) => row.phase === phase).map(({ leMs, n, sumMs }) => [leMs, n, sumMs]);
    expect(of("execution")).toEqual([
      [5, 1, 5],
      [10, 2, 13],
      [Number.MAX_SAFE_INTEGER, 1, 4_000_000],
    ]);
    expect(of("queue")).toEqual([[50, 4, 120]]);
    expect(of("startup")).toEqual([[25, 4, 84]]);
    expect(of("dep_install")).toEqual([]);
  });

  test("lost leases and retries are counted for every cause", async () => {
    await submitExecution(store.db, newExecution(), 10);
    await claim(0, 10);
    await expireLeases(store.db, 10);
    const leaseId = await claim(20);
    const release = { kind: "release", leaseId, error, retryAt: 30 } as const;
    await advance(store.db, { leaseId }, release, 25);
    expect(await totals()).toEqual({
      "leases default expired": 1,
      "leases default released": 1,
      "retries default": 1,
      "executions default failed": 1,
      dead_letters: 1,
    });
  });

  test("the count of dead letters falls when they are removed", async () => {
    for (let i = 0; i < 2; i++) {
      await submitExecution(store.db, newExecution(), 10);
      await end(await claim(0), 1, 1, true);
    }
    expect((await totals())["dead_letters"]).toBe(2);
    const [letter] = await listDeadLetters(store.db, {}, 1, 0);
    await deleteDeadLetter(store.db, letter?.id ?? 0, by());
    expect((await totals())["dead_letters"]).toBe(1);
  });

  test("the age of the oldest waiting execution is reported, and a claim does not count as an end", async () => {
    expect((await readCounts(store.db)).oldestQueuedAt).toBeNull();
    await submitExecution(store.db, newExecution({ createdAt: 7 }), 10);
    await submitExecution(store.db, newExecution({ createdAt: 9 }), 10);
    expect((await readCounts(store.db)).oldestQueuedAt).toBe(7);
    await claim(10);
    expect((await readCounts(store.db)).oldestQueuedAt).toBe(9);
    expect(await totals()).toEqual({ dead_letters: 0 });
  });

  test("the trigger has the same bounds as the reported histogram", () => {
    const text = readFileSync("api/store/migrations/0006_end_triggers.sql", "utf8");
    const bounds = [...text.matchAll(/<= (\d+) THEN \1\n/g)].map(([, bound]) => Number(bound));
    expect(bounds).toEqual(phaseBoundsMs);
  });
});

test("a family is its help, its type and a line for each sample", () => {
  const text = familiesText([
    { name: "a", type: "gauge", help: "One.", samples: [{ value: 1 }, { value: 0.5 }] },
    {
      name: "b",
      type: "histogram",
      help: "Two.",
      samples: [{ suffix: "_bucket", labels: { job_type: 'a"b\\c\nd', le: "+Inf" }, value: 3 }],
    },
  ]);
  expect(text).toBe(
    [
      "# HELP a One.",
      "# TYPE a gauge",
      "a 1",
      "a 0.5",
      "# HELP b Two.",
      "# TYPE b histogram",
      'b_bucket{job_type="a\\"b\\\\c\\nd",le="+Inf"} 3',
      "",
    ].join("\n"),
  );
});
