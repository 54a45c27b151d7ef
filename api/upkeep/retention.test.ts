import { createHash } from "node:crypto";
import { existsSync, readdirSync, utimesSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";
import { setImmediate } from "node:timers/promises";
import { v7 } from "uuid";
import { beforeEach, describe, expect, test } from "vitest";
import type { Deps } from "../deps.ts";
import { artifactKey } from "../domain/files/store-key.ts";
import { advance } from "../store/jobs/advance.ts";
import { claimNext } from "../store/jobs/claim.ts";
import { expireLeases } from "../store/jobs/lease.ts";
import { findByLease, findExecution } from "../store/jobs/read.ts";
import { finishExecution } from "../store/jobs/finish.ts";
import { endedBefore } from "../store/retention.ts";
import { submitExecution } from "../store/jobs/submit.ts";
import { recordOutput } from "../store/output/chunks.ts";
import { findArtifact, recordArtifact } from "../store/output/artifacts.ts";
import { sweep } from "./sweep.ts";
import { success } from "../testing/scripted-agent.ts";
import { newExecution, offers } from "../testing/temp-store.ts";
import { store, useStore } from "../testing/use-store.ts";
import { testDeps } from "../testing/test-deps.ts";

const hourMs = 3_600_000;
const dayMs = 24 * hourMs;
const keepDays = 7;

useStore();
let clock: number;
let deps: Deps;
beforeEach(() => {
  clock = 100 * dayMs;
  deps = testDeps(store.db, store.folder, () => clock, { execution_retention_days: keepDays });
});

const submit = async (columns: Parameters<typeof newExecution>[0] = {}): Promise<string> => {
  const execution = newExecution({ id: v7({ msecs: clock }), createdAt: clock, ...columns });
  await submitExecution(store.db, execution, 1000);
  return execution.id;
};

async function claim(ttlMs = 1000): Promise<string> {
  const terms = { agentId: "a", expiresAt: clock + ttlMs, now: clock };
  const [leased] = await claimNext(store.db, terms, { slots: 1, gpus: 0 }, offers);
  return leased?.leaseId ?? "";
}

async function end(leaseId: string, status: "succeeded" | "failed" = "succeeded"): Promise<void> {
  const { stdout_base64: _1, stderr_base64: _2, ...report } = success;
  const error = { type: "value_error", message: "", phase: "execution" } as const;
  const outcome = status === "failed" ? { status, error } : { status, error: null };
  const streams = { stdout: new Uint8Array(9), stderr: new Uint8Array(), output: null };
  const result = { ...report, ...streams, ...outcome, output_json: null, hash: leaseId };
  await finishExecution(store.db, leaseId, result, clock);
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
  const counted = tables.map(async (table) => {
    const { rows } = await store.db.client.execute(`select count(*) from ${table}`);
    return [table, Number(rows[0]?.[0])] as const;
  });
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
    expect(await findArtifact(store.db, young, "young")).toBeDefined();
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
    const seen = new Set<number>();
    const swept = sweep(deps).then(() => "swept");
    do {
      seen.add((await rows())["executions"] ?? 0);
    } while ((await Promise.race([swept, setImmediate("sweeping")])) === "sweeping");
    expect((await rows())["executions"]).toBe(0);
    expect(seen.size).toBeGreaterThan(1);
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
    expect(await findArtifact(store.db, id, "kept")).toBeDefined();
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
