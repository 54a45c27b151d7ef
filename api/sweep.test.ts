import { createHash } from "node:crypto";
import { existsSync, readdirSync, utimesSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";
import { setImmediate } from "node:timers/promises";
import { v7 } from "uuid";
import { beforeEach, describe, expect, test } from "vitest";
import type { Deps } from "./deps.ts";
import { artifactKey } from "./files/rules.ts";
import { remove } from "./jobs/executions.ts";
import { advance, expireLeases, finishExecution } from "./jobs/lease.ts";
import { findArtifact, recordArtifact, recordOutput } from "./jobs/output.ts";
import { findByLease, findExecution } from "./jobs/sql.ts";
import { submitExecution } from "./jobs/submit.ts";
import { historyMs, minuteMs, minutesSince, toHistory } from "./monitoring/health.ts";
import { endedBefore } from "./store/retention.ts";
import { expire, recordMinute, removeOld, sweep } from "./sweep.ts";
import { onExecute } from "./testing/statements.ts";
import { result } from "./testing/store-model.ts";
import { by, clientOf, leaseJob, newExecution, storeJob, testDeps } from "./testing/temp-store.ts";
import { store, useOneStore, useStore } from "./testing/use-store.ts";

const hourMs = 3_600_000;
const dayMs = 24 * hourMs;
const keepDays = 7;

const countOf = async (table: string): Promise<number> =>
  Number((await store.db.client.execute(`select count(*) from ${table}`)).rows[0]?.[0]);

/** How many rows of a table others see during a sweep, and at last. */
async function seenWhileSwept(table: string, deps: Deps): Promise<number[]> {
  const seen: number[] = [];
  const swept = sweep(deps).then(() => "swept");
  do {
    seen.push(await countOf(table));
  } while ((await Promise.race([swept, setImmediate("sweeping")])) === "sweeping");
  return [...seen, await countOf(table)];
}

describe("retention", () => {
  useStore();
  let clock: number;
  let deps: Deps;
  beforeEach(() => {
    clock = 100 * dayMs;
    deps = testDeps(store.db, store.folder, () => clock, { execution_retention_days: keepDays });
  });

  const submit = (columns: Parameters<typeof newExecution>[0] = {}) =>
    storeJob(store.db, { id: v7({ msecs: clock }), createdAt: clock, ...columns });
  const claim = async (ttlMs = 1000) => (await leaseJob(store.db, { now: clock, ttlMs })).leaseId;

  async function end(leaseId: string, status: "succeeded" | "failed" = "succeeded"): Promise<void> {
    const error = { type: "value_error", message: "", phase: "execution" } as const;
    const outcome = status === "failed" ? { status, error } : { status, error: null };
    const own = { ...outcome, stdout: new Uint8Array(9), hash: leaseId };
    await finishExecution(store.db, leaseId, { ...result, ...own }, clock);
  }

  /** Stores and records a file of a lease; returns the key of its bytes. */
  async function upload(executionId: string, leaseId: string, text: string): Promise<string> {
    const sha256 = createHash("sha256").update(text).digest("hex");
    const announced = { sizeBytes: text.length, sha256 };
    const row = { executionId, leaseId, name: text, contentType: "text/plain", ...announced };
    await deps.artifacts.put(artifactKey(row), new Blob([text]).stream(), announced);
    await recordArtifact(store.db, row, 1000, clock);
    const attempt = (await findByLease(store.db, leaseId))?.attempt ?? 0;
    await recordOutput(
      store.db,
      { executionId, attempt, leaseId },
      [{ stream: "stdout", offset: 0, data: new Uint8Array(3) }],
      1000,
      clock,
    );
    return join(store.folder, "artifacts", artifactKey(row));
  }

  async function rows(): Promise<Record<string, number>> {
    const tables = ["executions", "payloads", "output_chunks", "artifacts", "dead_letters"];
    const counted = tables.map(async (table) => [table, await countOf(table)] as const);
    return Object.fromEntries(await Promise.all(counted));
  }

  describe("executions", () => {
    test("are removed with their rows when they ended before the retention time; their bytes follow later", async () => {
      const old = await submit();
      const file = await (async () => {
        const lease = await claim();
        const path = await upload(old, lease, "old");
        await end(lease, "failed");
        return path;
      })();
      clock += keepDays * dayMs;
      const young = await submit();
      const lease = await claim();
      const youngFile = await upload(young, lease, "young");
      await end(lease, "failed");
      await sweep(deps);
      expect(await findExecution(store.db, old)).toBeDefined();

      clock += 1;
      await sweep(deps);
      expect(await findExecution(store.db, old)).toBeUndefined();
      expect(await rows()).toEqual({
        executions: 1,
        payloads: 1,
        output_chunks: 0,
        artifacts: 1,
        dead_letters: 1,
      });
      clock += hourMs - 1;
      await sweep(deps);
      expect(existsSync(file)).toBe(true);
      clock += 1;
      deps = testDeps(store.db, store.folder, () => clock);
      await sweep(deps);
      expect([existsSync(file), existsSync(youngFile)]).toEqual([false, true]);
      expect(await findArtifact(store.db, { executionId: young, name: "young" })).toBeDefined();
    });

    test("stay until they have ended, however old they are, and then for the retention time", async () => {
      const waiting = await submit();
      clock += 50 * dayMs;
      const running = await submit();
      const first = await claim(100 * dayMs);
      const second = await claim(100 * dayMs);
      expect((await findExecution(store.db, running))?.leaseId).toBe(second);
      clock += 50 * dayMs;
      await end(first);
      await sweep(deps);
      expect(await findExecution(store.db, waiting)).toMatchObject({ status: "succeeded" });
      expect(await findExecution(store.db, running)).toMatchObject({ status: "running" });
    });

    test("keep the id of a parent that is gone", async () => {
      const parent = await submit();
      await end(await claim());
      clock += 8 * dayMs;
      const child = await submit({ parentExecutionId: parent, relationship: "rerun" });
      await sweep(deps);
      expect(await findExecution(store.db, parent)).toBeUndefined();
      expect(await findExecution(store.db, child)).toMatchObject({ parentExecutionId: parent });
    });

    test("are removed after 30 days by default, and never if the configuration says so", async () => {
      const id = await submit();
      await end(await claim());
      const configured = (config: object) => testDeps(store.db, store.folder, () => clock, config);
      clock += 30 * dayMs;
      await sweep(configured({}));
      clock += 1;
      await sweep(configured({ execution_retention_days: 0 }));
      expect(await findExecution(store.db, id)).toBeDefined();
      await sweep(configured({}));
      expect(await findExecution(store.db, id)).toBeUndefined();
    });

    test("are removed in portions, and other work runs in between", async () => {
      for (let i = 0; i < 120; i++) {
        await submit();
        await end(await claim());
      }
      clock += 8 * dayMs;
      const seen = await seenWhileSwept("executions", deps);
      expect(seen.at(-1)).toBe(0);
      expect(seen.filter((left) => left > 0 && left < 120)).not.toEqual([]);
    });

    test("are removed in portions by size, at least one at a time", async () => {
      const big = new Uint8Array(3000);
      const ids: string[] = [];
      for (const columns of [{}, { code: big, codeBytes: 3000 }, {}]) {
        clock += 1;
        ids.push(await submit(columns));
      }
      for (const _ of ids) await end(await claim());
      clock += 1;
      const most = (bytes: number) => endedBefore(store.db, clock, { rows: 10, bytes });
      expect(await most(1)).toEqual(ids.slice(0, 1));
      expect(await most(3000)).toEqual(ids.slice(0, 1));
      expect(await most(3100)).toEqual(ids.slice(0, 3));
      expect(await endedBefore(store.db, clock, { rows: 2, bytes: 1e6 })).toEqual(ids.slice(0, 2));
    });
  });

  describe("bytes that no record shows", () => {
    test("of a lost lease are removed an hour later, even if executions are kept forever", async () => {
      deps = testDeps(store.db, store.folder, () => clock);
      const id = await submit();
      const lost = await upload(id, await claim(), "lost");
      clock += 1000;
      await expireLeases(store.db, clock);
      const lease = await claim();
      const kept = await upload(id, lease, "kept");
      await end(lease);

      clock += hourMs - 1;
      await sweep(deps);
      expect(existsSync(lost)).toBe(true);
      clock += 1;
      await sweep(deps);
      expect([existsSync(lost), existsSync(kept)]).toEqual([false, true]);
      expect(await rows()).toMatchObject({ artifacts: 1, output_chunks: 0 });
      expect(await findArtifact(store.db, { executionId: id, name: "kept" })).toBeDefined();
    });

    test("of the last lease are removed, too, if it brought no result, and its log stays", async () => {
      const id = await submit();
      for (let attempt = 0; attempt < 2; attempt++) {
        const leaseId = await claim();
        await upload(id, leaseId, `attempt ${attempt}`);
        const error = { type: "docker_error", message: "", phase: "startup" } as const;
        await advance(
          store.db,
          { leaseId },
          { kind: "release", leaseId, error, retryAt: clock },
          clock,
        );
      }
      clock += hourMs;
      await sweep(deps);
      expect(await rows()).toMatchObject({ executions: 1, artifacts: 0, output_chunks: 1 });
    });

    test("of one prefix that cannot be removed do not block others, and are tried again an hour later", async () => {
      const files: string[] = [];
      for (const text of ["a", "b", "c"]) {
        const id = await submit();
        const lease = await claim();
        files.push(await upload(id, lease, text));
        await end(lease);
        clock += 1;
      }
      clock += keepDays * dayMs;
      await sweep(deps);
      const { artifacts } = deps;
      const stuck = relative(join(store.folder, "artifacts"), files[0] ?? "").split("/")[0];
      const tried: string[] = [];
      const failing = new Set([stuck]);
      deps.artifacts = {
        ...artifacts,
        async remove(prefix) {
          tried.push(prefix);
          if (failing.has(prefix)) throw new Error("EACCES: permission denied");
          await artifacts.remove(prefix);
        },
      };
      clock += hourMs;
      await sweep(deps);
      expect(files.map((file) => existsSync(file))).toEqual([true, false, false]);
      await sweep(deps);
      expect(tried.filter((prefix) => prefix === stuck)).toHaveLength(1);
      failing.clear();
      clock += hourMs;
      await sweep(deps);
      expect(existsSync(files[0] ?? "")).toBe(false);
    });

    test("of uploads that broke off are removed after an hour without a write", async () => {
      clock = Date.now();
      await upload(await submit(), await claim(), "whole");
      const incoming = join(store.folder, "artifacts", "incoming");
      expect(readdirSync(incoming)).toEqual([]);
      for (const [name, at] of [
        ["old", clock - hourMs - 1000],
        ["young", clock - hourMs + 60_000],
      ] as const) {
        writeFileSync(join(incoming, name), "x");
        utimesSync(join(incoming, name), at / 1000, at / 1000);
      }
      await sweep(deps);
      expect(readdirSync(incoming)).toEqual(["young"]);
    });
  });
});

describe("tombstones", () => {
  useOneStore();

  test("the key of a removed execution is given away again when its record would have been", async () => {
    let now = 100 * dayMs;
    const deps = testDeps(store.db, store.folder, () => now, { execution_retention_days: 7 });
    const submit = () => submitExecution(store.db, newExecution({ idempotencyKey: "key" }), 10);
    const execution = newExecution({ idempotencyKey: "key" });
    await submitExecution(store.db, execution, 10);
    await advance(store.db, { id: execution.id }, { kind: "cancel" }, now);
    await remove(clientOf(deps), execution.id, by(now));
    expect(await submit()).toEqual({ kind: "removed", id: execution.id });

    now += 7 * dayMs;
    await sweep(deps);
    expect(await submit()).toEqual({ kind: "removed", id: execution.id });
    now += 1;
    await sweep(deps);
    expect(await submit()).toMatchObject({ kind: "accepted" });
  });

  test("one sweep removes all old tombstones and batches", async () => {
    const now = 200 * dayMs;
    const deps = testDeps(store.db, store.folder, () => now, { execution_retention_days: 7 });
    const { client } = store.db;
    const numbers = "with recursive n(i) as (select 1 union all select i + 1 from n where i < 300)";
    await client.batch(
      [
        `${numbers} insert into tombstones (idempotency_key, execution_id, removed_at) select 'k' || i, 't' || i, 1 from n`,
        `${numbers} insert into batches (id, submission_hash, outcome, created_at) select 'b' || i, '', x'', 1 from n`,
      ],
      "write",
    );
    await sweep(deps);
    expect([await countOf("tombstones"), await countOf("batches")]).toEqual([0, 0]);
  });
});

describe("sweep", () => {
  const now = 100 * dayMs;

  useOneStore();

  /** A dead letter of this age, with a new execution. */
  async function letterOf(ageMs: number): Promise<string> {
    const id = await storeJob(store.db);
    await store.db.client.execute({
      sql: "insert into dead_letters (execution_id, error_type, created_at) values (?, 'oom', ?)",
      args: [id, now - ageMs],
    });
    return id;
  }

  test("many dead letters are removed in portions, and other work runs in between", async () => {
    for (let i = 0; i < 120; i++) await letterOf(20 * dayMs);
    const deps = testDeps(store.db, store.folder, () => now, { dlq_retention_days: 7 });
    const seen = await seenWhileSwept("dead_letters", deps);
    expect(seen.at(-1)).toBe(0);
    expect(seen.filter((left) => left > 0 && left < 120)).not.toEqual([]);
  });

  test("dead letters are removed after dlq_retention_days; their records stay", async () => {
    const old = await letterOf(7 * dayMs + 1);
    const young = await letterOf(7 * dayMs);
    await sweep(testDeps(store.db, store.folder, () => now, { dlq_retention_days: 7 }));
    const { rows } = await store.db.client.execute("select execution_id from dead_letters");
    expect(rows.map((row) => row["execution_id"])).toEqual([young]);
    expect(await findExecution(store.db, old)).toBeDefined();
  });

  test("the check for expired leases, which runs every second, only reads if there are none", async () => {
    const writes: string[] = [];
    const stop = onExecute(store.db.client, (sql) => {
      if (/^\s*(insert|update|delete)/i.test(sql)) writes.push(sql);
    });
    await expire(testDeps(store.db, store.folder, () => now));
    stop();
    expect(writes).toEqual([]);
  });

  test("a removal returns whether more is left, so that the next one follows soon", async () => {
    for (let i = 0; i < 1001; i++) await letterOf(20 * dayMs);
    const deps = testDeps(store.db, store.folder, () => now, { dlq_retention_days: 7 });
    expect(await removeOld(deps)).toBe(true);
    expect(await removeOld(deps)).toBe(false);
  });
});

describe("record minute", () => {
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
});

describe("build retention", () => {
  useStore();

  test("builds are removed with their logs, except a job type's last one and the last image of each kind; of a tenant's type only the last image, while it exists", async () => {
    let clock = 100 * dayMs;
    const [a, b] = ['{"v":1}', '{"v":2}'];
    const own = (v: number) => `{"tenant":"acme","v":${v}}`;
    const insert = (id: string, jobType: string, spec: string, built: boolean) => ({
      sql: `insert into builds (id, job_type, tag, spec, image_ref, status, correlation_id, created_at, ended_at, digest, python_version, error)
      values (?, ?, 'latest', ?, '', ?, '', 0, ?, ?, ?, ?)`,
      args: [
        id,
        jobType,
        spec,
        built ? "built" : "failed",
        clock,
        ...(built ? ["digest", "3.13", null] : [null, null, "{}"]),
      ],
    });
    await store.db.client.batch(
      [
        insert("first", "ml", a, true),
        insert("second", "ml", a, true),
        insert("other", "ml", b, true),
        insert("failed", "ml", b, false),
        insert("last", "ml", b, false),
        insert("replaced", "acme.kept", own(1), true),
        insert("kept", "acme.kept", own(2), true),
        insert("gone", "acme.gone", own(1), true),
        "insert into job_types (name, tenant, definition, changed_at) values ('acme.kept', 'acme', '{}', 0)",
        "insert into build_logs (build_id, lease_id, offset, data) values ('first', '', 0, x'00'), ('last', '', 0, x'00')",
      ],
      "write",
    );
    const ids = async (sql: string) =>
      (await store.db.client.execute(sql)).rows.map((row) => row[0]);
    const deps = testDeps(store.db, store.folder, () => clock, {
      execution_retention_days: keepDays,
    });
    await sweep(deps);
    expect(await ids("select id from builds order by seq")).toHaveLength(8);
    clock += keepDays * dayMs + 1;
    await sweep(deps);
    expect(await ids("select id from builds order by seq")).toEqual([
      "second",
      "other",
      "last",
      "kept",
    ]);
    expect(await ids("select build_id from build_logs")).toEqual(["last"]);
  });
});
