import { beforeEach, expect, test } from "vitest";
import type { Deps } from "../deps.ts";
import { historyMs, minuteMs, toHistory } from "../domain/history.ts";
import { minutesSince } from "../store/minutes.ts";
import { submitExecution } from "../store/jobs/submit.ts";
import { newExecution } from "../testing/temp-store.ts";
import { store, useStore } from "../testing/use-store.ts";
import { testDeps } from "../testing/test-deps.ts";
import { recordMinute } from "./record-minute.ts";

const start = 1000 * historyMs;

useStore();
let clock: number;
let deps: Deps;
beforeEach(() => {
  clock = start;
  deps = testDeps(store.db, store.folder, () => clock);
});

const count = (status: string, n: number) =>
  store.db.client.execute({
    sql: "insert into counts (name, job_type, label, n) values ('executions', ?, ?, ?)",
    args: [`type-${n}`, status, n],
  });

test("a minute is recorded once, with what waits and what has ended in all job types", async () => {
  await submitExecution(store.db, newExecution({ createdAt: clock }), 1000);
  await count("failed", 2);
  await count("failed", 3);
  await recordMinute(deps);
  await count("succeeded", 7);
  clock += minuteMs - 1;
  await recordMinute(deps);
  const recorded = { at: start, pending: 1, running: 0, slots: 0, ended: { failed: 5 } };
  expect(await minutesSince(store.db, 0)).toEqual([recorded]);
  clock += 1;
  await recordMinute(deps);
  expect(await minutesSince(store.db, start + 1)).toEqual([
    { ...recorded, at: start + minuteMs, ended: { failed: 5, succeeded: 7 } },
  ]);
});

test("two processes record a minute once", async () => {
  await Promise.all([recordMinute(deps), recordMinute(deps)]);
  expect(await minutesSince(store.db, 0)).toHaveLength(1);
});

test("minutes older than two days are removed", async () => {
  await recordMinute(deps);
  clock += historyMs + 2 * minuteMs;
  await recordMinute(deps);
  expect((await minutesSince(store.db, 0)).map(({ at }) => at)).toEqual([clock]);
});

test("a point has the most executions that waited, ran and could run, and those that ended since the point before", () => {
  const minute = (n: number, pending: number, failed: number, slots = 4) => ({
    at: start + n * minuteMs,
    pending,
    running: 1,
    slots,
    ended: { failed },
  });
  const minutes = [minute(0, 9, 100), minute(1, 5, 101), minute(2, 3, 103, 0), minute(3, 1, 103)];
  const ended = { succeeded: 0, timeout: 0, oom: 0, cancelled: 0 };
  const point = (n: number, pending: number, failed: number) => ({
    at: new Date(start + n * minuteMs).toISOString(),
    pending,
    running: 1,
    max_workers: 4,
    ended: { ...ended, failed },
  });
  expect(toHistory(minutes, 2 * minuteMs)).toEqual({ points: [point(2, 5, 3), point(4, 1, 0)] });
  expect(toHistory([], minuteMs)).toEqual({ points: [] });
});
