import { beforeEach, describe, expect, test } from "vitest";
import type { TenantLimits } from "../../shared/wire/access.ts";
import { addJoinCode, exchangeCode, revokeToken } from "../agents/agents.ts";
import { claimNext } from "../agents/claim.ts";
import { expectFile, recordFile, removeFile } from "../files/sql.ts";
import { submitBatch } from "../jobs/batch-sql.ts";
import { advance, finishExecution } from "../jobs/lease.ts";
import { recordArtifact, recordOutput } from "../jobs/output.ts";
import { submitExecution } from "../jobs/submit.ts";
import { forgetRemoval, removeExecution } from "../store/retention.ts";
import { miscounted, result } from "../testing/store-model.ts";
import { by, handleOf, newExecution, noLimits, offers } from "../testing/temp-store.ts";
import { store, useStore } from "../testing/use-store.ts";
import { keepListening } from "../webhooks/sql.ts";
import {
  findTenant,
  fullQuota,
  listAudit,
  listTenants,
  ownTenant,
  pruneAudit,
  setLimits,
  usageOf,
} from "./sql.ts";

useStore();

describe("tenants", async () => {
  const limit = (limits: Partial<TenantLimits>) =>
    setLimits(store.db, "search", { ...noLimits, ...limits }, by(1000));
  const its = (columns: Parameters<typeof newExecution>[0] = {}) =>
    newExecution({ tenant: "search", ...columns });
  const submit = async (columns?: Parameters<typeof its>[0]) =>
    (await submitExecution(store.db, its(columns), 1e6)).kind;
  const used = async () => (await ownTenant(handleOf(store.db, "search")))!;

  test("limits make a tenant, replace all its limits, and tell whether they changed", async () => {
    const { db } = store;
    await setLimits(db, "search", { ...noLimits, max_queued: 5, max_requests: 7 }, by(1000));
    await setLimits(db, "search", { ...noLimits, max_running: 2 }, by(2000));
    await setLimits(db, "search", { ...noLimits, max_running: 2 }, by(3000));
    const row = await findTenant(handleOf(db, "search"), "search");
    expect(usageOf(row!, 0).limits).toEqual({ ...noLimits, max_queued: 1000, max_running: 2 });
    expect(row!.createdAt).toBe(1000);
    expect((await listTenants(db)).map(({ name }) => name)).toEqual(["default", "search"]);
    expect(await findTenant(handleOf(db, "default"), "search")).toBeUndefined();
    const entries = await listAudit(db, { action: "tenant.limits", tenant: "search" }, 9);
    expect(entries.map(({ at }) => at)).toEqual([2000, 1000]);
  });

  describe("a limit", () => {
    test("of waiting jobs holds no call back, that of CPU time does", async () => {
      const { db } = store;
      await setLimits(db, "default", { ...noLimits, max_queued: 0, max_cpu_s_day: 0 }, by());
      const row = (await findTenant(db, "default"))!;
      const call = { jobs: 0, calls: 1, bytes: 1 };
      expect(fullQuota(row, call, 0)).toMatchObject({ quota: "max_cpu_s_day" });
      expect(fullQuota({ ...row, maxCpuSDay: null }, call, 0)).toBeUndefined();
    });

    const day = 86_400_000;

    test.each([
      ["max_queued", { jobs: 1, bytes: 0 }, undefined],
      ["max_queued", { jobs: 2, bytes: 0 }, { quota: "max_queued", limit: 3, used: 2 }],
      ["max_stored_bytes", { jobs: 0, bytes: 4 }, undefined],
      [
        "max_stored_bytes",
        { jobs: 0, bytes: 5 },
        { quota: "max_stored_bytes", limit: 10, used: 6 },
      ],
      ["max_cpu_s_day", { jobs: 1, bytes: 0 }, { quota: "max_cpu_s_day", limit: 0, used: 0 }],
      ["max_cpu_s_day", { jobs: 0, bytes: 99 }, undefined],
    ])("%s lets its last place be used, and no more: %o", async (quota, more, full) => {
      const limits = { max_queued: 3, max_stored_bytes: 10, max_cpu_s_day: 0 };
      await limit({});
      await submit();
      await submit();
      await limit({ [quota]: limits[quota as keyof typeof limits] });
      expect(fullQuota(await used(), more, 0)).toEqual(full);
    });

    test("lets exactly one of 50 submissions have the last place", async () => {
      await limit({ max_queued: 3 });
      await submit();
      await submit();
      const kinds = await Promise.all(Array.from({ length: 50 }, () => submit()));
      expect(kinds.filter((kind) => kind === "accepted")).toHaveLength(1);
      expect(fullQuota(await used(), { jobs: 1, bytes: 3 }, 0)).toEqual({
        quota: "max_queued",
        limit: 3,
        used: 3,
      });
      expect((await submitExecution(store.db, newExecution(), 1e6)).kind).toBe("accepted");
    });

    test("still lets a repeat find its job", async () => {
      await limit({ max_queued: 1 });
      await submit({ idempotencyKey: "key" });
      expect(await submit()).toBe("full");
      expect(await submit({ idempotencyKey: "key" })).toBe("existing");
    });

    test("of stored bytes counts code, input, stdin, args and files of the request", async () => {
      await limit({ max_stored_bytes: 100 });
      const content = new Uint8Array(50);
      const file = { name: "f", sizeBytes: 50, sha256: "", contentType: "", content };
      const files = [{ ...file, storeKey: null, owner: null }];
      expect(await submit({ stdin: new Uint8Array(30), args: ["ä"], files })).toBe("accepted");
      expect((await used()).storedBytes).toBe(3 + 30 + 6 + 50);
      expect(await submit({ stdin: new Uint8Array(9) })).toBe("full");
      const upload = (sizeBytes: number) =>
        expectFile(store.db, { id: `${sizeBytes}`, sizeBytes, tenant: "search" }, 0, 1e9);
      expect(await upload(12)).toBe(false);
      expect(await upload(4)).toBe(true);
      expect(await submit({ stdin: new Uint8Array(4) })).toBe("accepted");
      expect(await upload(1)).toBe(false);
      expect(await upload(0)).toBe(true);
    });

    test("of stored bytes counts metadata and requirements, too", async () => {
      await limit({ max_stored_bytes: 20 });
      expect(await submit({ metadata: { k: "ä" }, requirements: ["six"] })).toBe("accepted");
      expect((await used()).storedBytes).toBe(3 + 10 + 7);
      expect((await store.db.client.execute(miscounted)).rows).toEqual([]);
      expect(await submit()).toBe("full");
    });

    test("of no CPU time refuses the first job", async () => {
      await limit({ max_cpu_s_day: 0 });
      expect(await submit({ createdAt: 20 * day })).toBe("full");
    });

    test("of CPU time holds until the day ends", async () => {
      await limit({ max_cpu_s_day: 5 });
      await submit();
      const [job] = await claim(10);
      await finish(job!.leaseId!, { cpuMs: 5000, at: 20 * day + 1000 });
      const seen = await used();
      expect(seen).toMatchObject({ cpuDay: 20, cpuMs: 5000, running: 0 });
      const more = { jobs: 1, bytes: 0 };
      const full = { quota: "max_cpu_s_day", limit: 5, used: 5 };
      expect(fullQuota(seen, more, 21 * day - 1)).toEqual(full);
      expect(fullQuota(seen, more, 21 * day)).toBeUndefined();
      expect(await submit({ createdAt: 21 * day - 1 })).toBe("full");
      expect(await submit({ createdAt: 21 * day })).toBe("accepted");
    });
  });

  describe("a batch takes the smaller room", () => {
    const batch = async (isAtomic: boolean, room = 1e6) => {
      const items = Array.from({ length: 5 }, (_, n) => ({
        n,
        isBlocked: false,
        execution: its({ idempotencyKey: `${n}`, stdin: new Uint8Array(n) }),
      }));
      const common = { tenant: "search", keyId: null, idempotencyKey: null, submissionHash: "" };
      const made = { ...common, id: crypto.randomUUID(), createdAt: 0, isAtomic, items };
      const { outcome } = await submitBatch(store.db, made, room);
      return outcome.filter(({ isAccepted }) => isAccepted).length;
    };
    test.each([
      ["of the tenant", { max_queued: 3 }, 1e6, 3],
      ["of the service", { max_queued: 3 }, 2, 2],
      ["in bytes", { max_stored_bytes: 12 }, 1e6, 3],
      ["without any", { max_cpu_s_day: 0 }, 1e6, 0],
    ])("%s", async (_what, limits, room, accepted) => {
      await limit(limits);
      expect(await batch(true, room)).toBe(0);
      expect((await used()).queued).toBe(0);
      expect(await batch(false, room)).toBe(accepted);
      // Only jobs that have their place already.
      expect(await batch(false, room)).toBe(0);
      expect((await store.db.client.execute(miscounted)).rows).toEqual([]);
    });
  });

  describe("what a tenant uses", () => {
    let id: string;
    beforeEach(async () => {
      await limit({});
      ({ id } = its());
      await submit({ id });
    });

    test("counts output, artifacts and files until their bytes are gone", async () => {
      const { db } = store;
      const [job] = await claim(10);
      const leaseId = job!.leaseId!;
      const seen: number[] = [];
      const count = async () => {
        seen.push((await used()).storedBytes);
        expect((await db.client.execute(miscounted)).rows).toEqual([]);
      };
      await count();
      const part = { stream: "stdout", offset: 0, data: new Uint8Array(10) } as const;
      await recordOutput(db, { executionId: id, attempt: 1, leaseId }, [part], 1e6, 20);
      const artifact = { executionId: id, leaseId, name: "a", sizeBytes: 100 };
      await recordArtifact(db, { ...artifact, sha256: "", contentType: "" }, 1e6, 20);
      await count();
      await finish(leaseId, { stdout: new Uint8Array(20), at: 30 });
      await count();
      await expectFile(db, { id: "f", sizeBytes: 1000, tenant: "search" }, 1e9, 1e6);
      await count();
      const file = { id: "f", tenant: "search", name: "", sizeBytes: 1000, sha256: "" };
      const stored = { ...file, contentType: "", createdAt: 1, expiresAt: 9e9, uploadKey: null };
      await recordFile(db, stored);
      await count();
      await removeFile(handleOf(db, "search"), "f", 100);
      await removeExecution(handleOf(db, "search"), id, 100, by(40));
      await count();
      await forgetRemoval(db, "f");
      await count();
      await forgetRemoval(db, id);
      await count();
      expect(seen).toEqual([3, 113, 123, 1123, 1123, 1100, 100, 0]);
    });

    test("counts an artifact until its bytes are gone, even if a job that had it as input was removed before", async () => {
      const { db } = store;
      const handle = handleOf(db, "search");
      const [job] = await claim(10);
      const artifact = { executionId: id, leaseId: job!.leaseId!, name: "a", sizeBytes: 100 };
      await recordArtifact(db, { ...artifact, sha256: "", contentType: "" }, 1e6, 20);
      await finish(job!.leaseId!, { at: 30 });
      const file = { name: "f", sizeBytes: 100, sha256: "", contentType: "", content: null };
      const given = its({ files: [{ ...file, storeKey: `${id}/a`, owner: id }] });
      await submitExecution(db, given, 1e6);
      await advance(handle, { id: given.id }, { kind: "cancel" }, 35);
      await removeExecution(handle, given.id, 100, by(40));
      await removeExecution(handle, id, 100, by(50));
      expect((await used()).storedBytes).toBe(100);
      await forgetRemoval(db, id);
      expect((await used()).storedBytes).toBe(0);
    });
  });

  async function claim(now: number) {
    return claimNext(
      store.db,
      { agentId: "a", expiresAt: 9e15, now },
      { slots: 1, gpus: 0, inputs: "mount" },
      offers,
    );
  }

  async function finish(
    leaseId: string,
    {
      cpuMs = 0,
      stdout = new Uint8Array(),
      at,
    }: { cpuMs?: number; stdout?: Uint8Array; at: number },
  ) {
    const resource_usage = { cpu_time_ms: cpuMs, max_rss_mb: 1, wall_time_ms: 1 };
    const own = { resource_usage, stdout, hash: leaseId };
    await finishExecution(store.db, leaseId, { ...result, ...own }, at);
  }

  test("events of all tenants are kept for a client of all, although those of one are kept already", async () => {
    const { client } = store.db;
    await client.execute("insert into tenants (name, created_at) values ('aaa', 1), ('zzz', 1)");
    await keepListening(handleOf(store.db, "aaa"), 100, 200);
    await keepListening(handleOf(store.db, "*"), 100, 200);
    const { rows } = await client.execute("select distinct listening_until from tenants");
    expect(rows.map((row) => row[0])).toEqual([200]);
  });
});

describe("audit", () => {
  const dayMs = 24 * 3_600_000;

  beforeEach(async () => {
    await addJoinCode(store.db, { codeHash: "code", name: "gpu", expiresAt: 8e15 }, by(1));
    await exchangeCode(store.db, "code", { id: "host", tokenHash: "t", name: "n" }, 1);
  });

  test("a change has one entry, and a change of nothing has none, even at once", async () => {
    const revoked = await Promise.all([1, 2, 3].map((at) => revokeToken(store.db, "host", by(at))));
    expect(revoked).toEqual([true, false, false]);
    expect((await listAudit(store.db, { action: "host.revoke" }, 9)).map(({ at }) => at)).toEqual([
      1,
    ]);
  });

  test("an entry whose change fails is not made", async () => {
    const again = { codeHash: "code", name: "gpu", expiresAt: 8e15 };
    await expect(addJoinCode(store.db, again, by(2))).rejects.toThrow("UNIQUE");
    expect(await listAudit(store.db, {}, 9)).toHaveLength(1);
  });

  test("an entry cannot change, and is kept for 30 days", async () => {
    const { client } = store.db;
    await expect(client.execute("UPDATE audit SET action = 'x'")).rejects.toThrow("cannot change");
    await addJoinCode(store.db, { codeHash: "new", name: null, expiresAt: 8e15 }, by(Date.now()));
    await expect(client.execute("DELETE FROM audit")).rejects.toThrow("30 days");
    expect(await pruneAudit(store.db, Date.now() - 31 * dayMs, 9)).toBe(1);
    expect(await listAudit(store.db, {}, 9)).toHaveLength(1);
  });
});
