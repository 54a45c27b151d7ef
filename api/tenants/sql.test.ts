import { beforeEach, describe, expect, test } from "vitest";
import { jsonRequest } from "../../scripts/operate/command.ts";
import type { TenantLimits } from "../../shared/wire/access.ts";
import { JobTypeDefinition } from "../../shared/wire/job-types.ts";
import type { PollRequest } from "../../shared/wire/leases.ts";
import { addJoinCode, exchangeCode, revokeToken } from "../agents/agents.ts";
import { claimNext } from "../agents/claim.ts";
import { expectFile, recordFile, removeFile } from "../files/sql.ts";
import { openBuilds } from "../images/sql.ts";
import { submitBatch } from "../jobs/batch-sql.ts";
import { advance, finishExecution } from "../jobs/lease.ts";
import { recordArtifact, recordOutput } from "../jobs/output.ts";
import { submitExecution } from "../jobs/submit.ts";
import { forgetRemoval, removeExecution } from "../store/retention.ts";
import { miscounted, result } from "../testing/store-model.ts";
import { by, handleOf, newExecution, noLimits, offers } from "../testing/temp-store.ts";
import { startProcess, store, useStore } from "../testing/use-store.ts";
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

describe("job types that tenants make", () => {
  const base = "python:3.13-slim";
  const tenants = ["acme", "other"];

  /** An API process on the one database, with two tenants and an agent that builds for them. */
  async function start(tenant_job_types = 3, tenant_builds = true, configured = {}) {
    const job_types = { big: JobTypeDefinition.parse({ memory_limit: "1g" }), ...configured };
    const settings = { job_types, tenant_job_types, api_rate_limit_enabled: false };
    const { deps, app, agent } = await startProcess(Date.now, settings);
    agent.maxSessions = 3;
    const send = async (tenant: string, method: string, path: string, body?: object) => {
      const request = jsonRequest(method, body, { "X-Airlock-Tenant": tenant });
      const answer = await app.request(path, request);
      const text = await answer.text();
      return {
        status: answer.status,
        text,
        json: text.startsWith("{") ? (JSON.parse(text) as Answer) : {},
      };
    };
    for (const tenant of tenants) await send("default", "PUT", `/tenants/${tenant}`, {});
    const poll = (changes: Partial<PollRequest> = {}) => {
      const status = agent.pollRequest({ images: [base], free_builds: 1, ...changes });
      const accepts = { ...status.agent.accepts, tenant_builds };
      return agent.poll({ ...status, agent: { ...status.agent, accepts } });
    };
    const names = async (tenant: string) => {
      const { text } = await send(tenant, "GET", "/job-types");
      return (JSON.parse(text) as { name: string }[]).map(({ name }) => name);
    };
    const submit = async (tenant: string, job_type: string, more = {}) =>
      (await send(tenant, "POST", "/execute/async", { code: "1", job_type, ...more })).json;
    return { deps, app, agent, send, poll, names, submit };
  }
  type Answer = Record<string, string>;
  const path = "/job-types/acme.report";
  const report = { requirements: ["attrs"], timeout: 5 };
  const image = `sha256:${"7".repeat(64)}`;
  const built = { status: "built", digest: image, python_version: "3.13.5", manifest_digest: null };

  test("are off: both calls are 404, and those of before are nobody's", async () => {
    await (await start()).send("acme", "PUT", path, report);
    const { send, names } = await start(0);
    for (const method of ["PUT", "DELETE"]) {
      const { status, json } = await send("acme", method, path, report);
      expect([status, json["detail"]]).toEqual([
        404,
        "Tenants make no job types here (tenant_job_types is 0).",
      ]);
    }
    expect(await names("acme")).toEqual(["default", "big"]);
  });

  test("the first job has the image built by an agent that builds for tenants, and runs on it", async () => {
    const strict = await start(3, false);
    const { send, submit, poll, agent } = await start();
    const made = await send("acme", "PUT", path, report);
    expect(made.json).toMatchObject({ name: "acme.report", requirements: ["attrs"], timeout: 5 });
    const { job_id, message } = await submit("acme", "acme.report");
    expect(message).toBe(
      "Waits for the image of acme.report. No agent with a working container engine is connected. Start one: npm run agent.",
    );
    expect((await strict.poll()).builds).toEqual([]);
    const { text } = await send("acme", "GET", `/jobs/${job_id}/result`);
    expect(text).toContain("(agent_builds, agent_tenant_builds, agent_job_types)");
    expect((await send("acme", "POST", `${path}/build`)).status).toBe(503);
    const [build] = (await poll()).builds;
    expect(build).toMatchObject({
      tenant: "acme",
      steps: [{ kind: "pip", packages: ["attrs"], own: true }],
    });
    await agent.postBuild(build!.lease_id, "result", built);
    const [job] = (await poll({ images: [base, image] })).jobs;
    expect(job).toMatchObject({ execution_id: job_id, tenant: "acme", image, timeout_s: 5 });
    expect(Object.keys(job!.job_type)).not.toContain("made");
  });

  test("a deleted one fails what waits for it and withdraws its build; its archive goes", async () => {
    const { send, submit, poll, deps } = await start();
    await send("acme", "PUT", path, report);
    const later = { run_at: new Date(Date.now() + 60_000).toISOString() };
    const jobs = [await submit("acme", "acme.report"), await submit("acme", "acme.report", later)];
    const session = (await send("acme", "POST", "/sessions", { job_type: "acme.report", wait: 0 }))
      .json;
    await poll({ free_builds: 0 });
    expect((await openBuilds(deps.db)).map(({ status }) => status)).toEqual(["queued"]);
    expect((await send("acme", "DELETE", path)).json).toEqual({
      name: "acme.report",
      deleted: true,
    });
    const error = { type: "config_error", message: "Job type acme.report was deleted." };
    for (const { job_id } of jobs)
      expect((await send("acme", "GET", `/executions/${job_id}`)).json["error"]).toMatchObject(
        error,
      );
    const ended = await send("acme", "GET", `/sessions/${session["session_id"]}`);
    expect(ended.json["error"]).toMatchObject(error);
    expect(await openBuilds(deps.db)).toEqual([]);
    expect(
      (await send("acme", "POST", "/execute", { code: "1", job_type: "acme.report" })).status,
    ).toBe(400);
    expect((await send("acme", "DELETE", path)).status).toBe(404);
    const log = await deps.db.client.execute(
      "SELECT action, tenant, target FROM audit WHERE action LIKE 'job_type.%'",
    );
    expect(log.rows.map((row) => Array.from(row))).toEqual([
      ["job_type.put", "acme", "acme.report"],
      ["job_type.delete", "acme", "acme.report"],
    ]);
  });

  test("a change withdraws the queued build of what it was, and a tenant's builds keep no other's waiting", async () => {
    const { send, submit, poll, deps } = await start();
    for (const name of ["acme.a", "acme.b", "other.a"]) {
      for (const requirements of [["attrs"], ["six"]]) {
        await send(name.split(".")[0]!, "PUT", `/job-types/${name}`, { requirements });
        await submit(name.split(".")[0]!, name);
        await poll({ free_builds: 0, free_slots: 0 });
      }
    }
    expect((await openBuilds(deps.db)).map(({ spec }) => spec.includes("six"))).toEqual([
      true,
      true,
      true,
    ]);
    const held: string[] = [];
    const taken: string[] = [];
    for (let n = 0; n < 3; n += 1) {
      const [build] = (await poll({ builds: held })).builds;
      held.push(build!.lease_id);
      taken.push(build!.job_type);
    }
    expect(taken).toEqual(["acme.a", "other.a", "acme.b"]);
  });

  test("where the configuration takes the name later, its jobs stay, nobody sees the other's log, and the former can go", async () => {
    const before = await start();
    await before.send("acme", "PUT", path, report);
    await before.submit("acme", "acme.report");
    await before.poll({ free_builds: 0, free_slots: 0 });
    expect((await before.send("acme", "GET", `${path}/build`)).status).toBe(200);
    const taken = JobTypeDefinition.parse({ requirements: ["numpy"], tenants: ["other"] });
    const { send, submit, poll, deps } = await start(3, true, { "acme.report": taken });
    expect((await send("other", "GET", `${path}/build`)).status).toBe(404);
    const { job_id } = await submit("other", "acme.report");
    await poll({ free_builds: 0, free_slots: 0 });
    expect((await send("acme", "PUT", path, report)).status).toBe(409);
    expect((await send("acme", "DELETE", path)).status).toBe(200);
    expect((await send("acme", "DELETE", path)).status).toBe(409);
    expect((await openBuilds(deps.db)).at(-1)?.spec).toContain("numpy");
    const { json } = await send("other", "GET", `/executions/${job_id}`);
    expect(json["status"]).toBe("queued");
  });

  test("a name of the configuration is 409, one that is not the tenant's own 400, and so is what asks for more", async () => {
    const { send } = await start(1);
    await send("other", "PUT", "/job-types/other.a", {});
    const put = async (name: string, body: object = {}) => {
      const { status, json } = await send("acme", "PUT", `/job-types/${name}`, body);
      return [status, (json["errors"] as unknown as { path: string }[] | undefined)?.[0]?.path];
    };
    expect(await put("big")).toEqual([409, undefined]);
    expect((await send("acme", "DELETE", "/job-types/default")).status).toBe(409);
    // Whether another tenant has it or not.
    const [others, nobodys] = [await put("other.a"), await put("other.b")];
    expect([others, nobodys]).toEqual([
      [400, "name"],
      [400, "name"],
    ]);
    for (const name of ["report", "acme.", "acme.A", `acme.${"a".repeat(59)}`, "acme.a%2Fb"])
      expect([name, ...(await put(name))]).toEqual([name, 400, "name"]);
    expect(await put("acme.a", { memory_limit: "2g" })).toEqual([400, "memory_limit"]);
    expect(await put("acme.a", { dockerfile: "RUN id" })).toEqual([400, "dockerfile"]);
    expect(await put("acme.a", { requirements: ["six", "-r x"] })).toEqual([400, "requirements.1"]);
    expect(await put("acme.a", { extends: "big", memory_limit: "1g" })).toEqual([200, undefined]);
    expect(await put("acme.b")).toEqual([409, undefined]);
    expect(await put("acme.a", { timeout: 3 })).toEqual([200, undefined]);
  });

  test("no list of all tenants has their names, and processes know at once what another one was told", async () => {
    const [first, second] = [await start(), await start()];
    await first.send("acme", "PUT", path, { timeout: 3 });
    expect(await second.names("acme")).toEqual(["default", "big", "acme.report"]);
    await second.submit("acme", "acme.report");
    const pool = [{ job_type: "acme.report", runtime: null, ready: 1, starting: 0, in_use: 0 }];
    const [job] = (await first.poll({ pool })).jobs;
    await first.agent.result(job!.lease_id);
    for (const ask of ["/metrics", "/pool/stats", "/openapi.json"]) {
      const { text } = await second.send("other", "GET", ask);
      expect(text.includes("acme")).toBe(false);
      expect(text.includes("(of a tenant)")).toBe(ask !== "/openapi.json");
    }
  });

  test("two tenants that make, change, use and delete them at the same time see their own alone", async () => {
    const processes = [await start(), await start()];
    const model: Record<string, Set<string>> = { acme: new Set(), other: new Set() };
    let seed = 46;
    const random = () => (seed = (seed * 1_103_515_245 + 12_345) % 2 ** 31) / 2 ** 31;
    const pick = <T>(list: T[]): T => list[Math.floor(random() * list.length)]!;
    const steps: [tenant: string, method: string, name: string][] = Array.from(
      { length: 120 },
      () => {
        const tenant = pick(tenants);
        return [
          tenant,
          pick(["PUT", "PUT", "DELETE", "POST"]),
          `${tenant}.${pick(["a", "b", "c", "d"])}`,
        ];
      },
    );
    const walk = async (tenant: string) => {
      const own = model[tenant]!;
      for (const [, method, name] of steps.filter((step) => step[0] === tenant)) {
        const { send, names } = pick(processes);
        const isThere = own.has(name);
        const foreign = name.replace(tenant, tenant === "acme" ? "other" : "acme");
        const asks: [ask: string, path: string, body: object | undefined, wanted: number][] =
          method === "POST"
            ? [
                ["POST", "/execute/async", { code: "1", job_type: name }, isThere ? 202 : 400],
                ["POST", "/execute/async", { code: "1", job_type: foreign }, 400],
                ["GET", `/job-types/${foreign}`, undefined, 404],
                ["GET", `/job-types/${foreign}/build`, undefined, 404],
              ]
            : method === "PUT"
              ? [[method, `/job-types/${name}`, {}, !isThere && own.size === 3 ? 409 : 200]]
              : [[method, `/job-types/${name}`, undefined, isThere ? 200 : 404]];
        for (const [ask, path, body, wanted] of asks)
          expect((await send(tenant, ask, path, body)).status).toBe(wanted);
        if (method === "PUT" && own.size < 3) own.add(name);
        if (method === "DELETE") own.delete(name);
        expect(await names(tenant)).toEqual(["default", "big", ...[...own].sort()]);
      }
    };
    await Promise.all(tenants.map(walk));
    expect(model["acme"]!.size + model["other"]!.size).toBeGreaterThan(0);
  });
});
