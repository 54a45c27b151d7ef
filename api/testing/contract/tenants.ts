import { randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { expect } from "vitest";
import {
  ApiKey,
  ApiKeyList,
  type AuditEntry,
  AuditPage,
  NewApiKey,
  OwnKey,
  Scope,
  type Scope as ScopeName,
  Tenant,
  TenantList,
  Usage,
} from "../../../shared/wire/access.ts";
import type { ExecutionPage } from "../../../shared/wire/executions.ts";
import { PoolStats } from "../../../shared/wire/health.ts";
import {
  DeadLetterPage,
  type SubmittedBatch,
  SubmittedJob,
} from "../../../shared/wire/submissions.ts";
import { Follower } from "../follower.ts";
import {
  type Api,
  apiKeys,
  body,
  callMcp,
  expectFault,
  on,
  operatorKey,
  problemOf,
  type Row,
  test,
} from "./api.ts";

const as = (tenant: string) => ({ ...operator, "X-Airlock-Tenant": tenant });

interface ToolResult {
  isError?: boolean;
  content: [{ text: string }];
}

export const tenantRows = on("with keys", [
  test("An admin's key sees its own tenant's records, those of the tenant in X-Airlock-Tenant, or with * those of all, with the tenant", async (api) => {
    const { key } = await newKey(api, { tenant: "named", scopes: ["run", "read"] });
    const submitted = await api.post("/execute/async", { code: "1" }, bearer(key));
    const { job_id } = SubmittedJob.parse(body(submitted));
    const ids = async (headers: Record<string, string>, query = "") => {
      const page = body(await api.get(`/executions?${query}`, headers)) as ExecutionPage;
      return page.items.map(({ execution_id, tenant }) => [execution_id, tenant]);
    };
    expect(await ids(as("named"))).toEqual([[job_id, undefined]]);
    expect((await ids(as("*")))[0]).toEqual([job_id, "named"]);
    expect((await ids(as("*"), "fields=status"))[0]).toEqual([job_id, "named"]);
    expect(await ids(operator)).not.toContainEqual([job_id, undefined]);
    const path = `/jobs/${job_id}`;
    expect((await api.get(path, operator)).status).toBe(404);
    expect(body(await api.get(path, as("*")))).toMatchObject({ tenant: "named" });
    expect(body(await api.get(path, as("named")))).not.toHaveProperty("tenant");

    expect((await api.post(`${path}/cancel`, undefined, as("*"))).status).toBe(400);
    expect((await api.post("/execute/async", { code: "1" }, as("*"))).status).toBe(400);
    for (const single of ["/usage", "/webhooks/events"]) {
      expect((await api.get(single, as("*"))).status).toBe(400);
    }
    for (const wrong of ["nobody", "A"]) {
      expect((await api.get("/executions", as(wrong))).status).toBe(400);
    }
    const other = { ...bearer(key), "X-Airlock-Tenant": "default" };
    const refused = await api.get("/executions", other);
    expect(refused.status).toBe(403);
    expect(problemOf(refused).detail).toContain("scope admin");
    expect((await api.post(`${path}/cancel`, undefined, as("named"))).status).toBe(200);
  }),
  test("MCP: a tool acts on the tenant in X-Airlock-Tenant, if the key has the scope admin; a tool that changes something names one tenant", async (api) => {
    const { key } = await newKey(api, { tenant: "by-tools", scopes: ["run", "read"] });
    const call = async (headers: Record<string, string>, name: string, given: object) => {
      const params = { name, arguments: given };
      const answer = await callMcp(api, headers, "tools/call", params);
      const { result } = JSON.parse(/\{.*\}/s.exec(answer)![0]) as { result: ToolResult };
      const [{ text }] = result.content;
      return { isRefused: result.isError === true, text };
    };
    const run = (headers: Record<string, string>) =>
      call(headers, "execute_code", { code: "print(1)", wait_seconds: 0 });
    const made = await run(as("by-tools"));
    expect(made).toMatchObject({ isRefused: false });
    const { items } = body(await api.get("/executions", bearer(key))) as ExecutionPage;
    const job_id = items[0]!.execution_id;
    expect(made.text).toContain(job_id);

    const read = (headers: Record<string, string>) =>
      call(headers, "get_job", { job_id, wait_seconds: 0 });
    for (const name of ["by-tools", "*"]) {
      expect(await read(as(name))).toMatchObject({ isRefused: false });
    }
    const text = expect.stringContaining("does not exist") as string;
    expect(await read(operator)).toEqual({ isRefused: true, text });
    const others = { ...bearer(key), "X-Airlock-Tenant": "default" };
    for (const [headers, why] of [
      [others, "scope admin"],
      [as("*"), "name one tenant"],
      [as("nobody"), "no tenant of this name"],
    ] as const) {
      const refused = await run(headers);
      expect(refused.isRefused).toBe(true);
      expect(refused.text).toContain(why);
    }
    const cancelled = await call(as("by-tools"), "cancel_job", { job_id });
    expect(cancelled.isRefused).toBe(false);
  }),
  test("PUT /tenants/{name} makes the tenant and replaces its limits; a key sees its own tenant's", async (api) => {
    const put = (limits: object) => api.sendJson("PUT", "/tenants/limited", limits, operator);
    const limits = { max_queued: 5, max_cpu_s_day: 60, max_requests: 9 };
    const first = Tenant.parse(body(await put(limits)));
    expect(first).toMatchObject({ name: "limited", usage: { queued: 0, running: 0 } });
    expect(first.limits).toMatchObject({ ...limits, max_running: null });
    const second = Tenant.parse(body(await put({ max_queued: 7 })));
    expect(second.limits).toMatchObject({ max_queued: 7, max_cpu_s_day: null });
    expectFault(await put({ max_queued: -1 }), "max_queued");
    expect(body(await api.get("/tenants/limited", operator))).toEqual(second);
    const { tenants } = TenantList.parse(body(await api.get("/tenants", operator)));
    expect(tenants.map(({ name }) => name)).toEqual(expect.arrayContaining(["default", "limited"]));
    expect((await api.get("/tenants/nobody", operator)).status).toBe(404);
    const { key } = await newKey(api, { tenant: "limited", scopes: ["read"] });
    const usage = await api.get("/usage", bearer(key));
    expect(body(usage)).toMatchObject({ tenant: "limited", limits: { max_queued: 7 } });
  }),
  test("The audit log has each change of keys and limits with who made it, and nothing of a change that was none", async (api) => {
    const tenant = `audited-${randomBytes(4).toString("hex")}`;
    const { id, key } = await newKey(api, { tenant, scopes: ["read"] });
    await api.post(`/keys/${id}/rotate`, {}, operator);
    for (let n = 0; n < 2; n++) {
      await api.sendJson("PUT", `/tenants/${tenant}`, { max_queued: 3 }, operator);
    }
    for (let n = 0; n < 2; n++) await api.post(`/keys/${id}/revoke`, undefined, operator);
    const reply = await api.get(`/audit?tenant=${tenant}`, operator);
    const { items } = AuditPage.parse(body(reply));
    expect(items.map(({ action, target }) => [action, target])).toEqual([
      ["key.revoke", id],
      ["tenant.limits", tenant],
      ["key.rotate", id],
      ["key.create", id],
    ]);
    expect(items[0]).toMatchObject({ key_name: "operator_keys", tenant });
    expect(items[0]!.key_id).toMatch(/^[0-9a-f]{16}$/);
    expect(reply.text).not.toContain(key);
    const older = `/audit?tenant=${tenant}&before=${items[1]!.id}&limit=1`;
    const page = AuditPage.parse(body(await api.get(older, operator)));
    expect(page).toMatchObject({ items: [items[2]], has_more: true, count: 1 });
    const one = await api.get(`/audit?tenant=${tenant}&action=key.rotate`, operator);
    expect(AuditPage.parse(body(one)).items).toEqual([items[2]]);
  }),
]);

const operator = { "X-API-Key": operatorKey };
export const bearer = (key: string) => ({ Authorization: `Bearer ${key}` });

/** Makes a key by the public interface. */
export async function newKey(
  api: Api,
  fields: {
    scopes: ScopeName[];
    tenant?: string;
    name?: string;
    expires_in_s?: number;
    format?: "e2b";
  },
  by = operator,
): Promise<NewApiKey> {
  const reply = await api.post("/keys", { name: "a-key", ...fields }, by);
  expect(reply.status).toBe(201);
  return NewApiKey.parse(body(reply));
}

const statusOf = async (api: Api, key: string, path = "/executions"): Promise<number> =>
  (await api.get(path, bearer(key))).status;

/** Waits until a key is refused, which takes a second. */
async function becomesVoid(api: Api, key: string): Promise<void> {
  while ((await statusOf(api, key)) !== 401) await sleep(100);
}

/** What each endpoint needs, except those for which any key will do. */
const needs: Record<ScopeName, string> = {
  run: `POST /execute, POST /execute/async, POST /execute/batch, POST /jobs/{id}/rerun,
    POST /jobs/{id}/fork, POST /jobs/{id}/cancel, POST /jobs/{id}/tool-calls/{number}, POST /batches/{id}/cancel, POST /files,
    POST /sessions, PATCH /sessions/{id}, DELETE /sessions/{id}, POST /sessions/{id}/execute,
    POST /sessions/{id}/execute/async, POST /sessions/{id}/interrupt, POST /sessions/{id}/restart,
    POST /sessions/{id}/contexts, DELETE /sessions/{id}/contexts/{context_id}, GET /sessions/{id}/files,
    GET /sessions/{id}/files/{path}, PUT /sessions/{id}/files/{path}, DELETE /sessions/{id}/files/{path},
    POST /webhooks/deliveries/{id}/resend, DELETE /executions/{id}, DELETE /files/{id},
    DELETE /dlq/{id}`,
  read: `GET /jobs/{id}, GET /jobs/{id}/result, GET /jobs/{id}/events, GET /jobs/{id}/tool-calls, GET /jobs/{id}/logs,
    GET /jobs/{id}/artifacts, GET /jobs/{job_id}/artifacts/{artifact_name}, GET /executions,
    GET /sessions, GET /sessions/{id}, GET /sessions/{id}/contexts,
    GET /executions/{id}, GET /batches/{id}, GET /dlq, GET /dlq/stats, GET /files,
    GET /files/{id}, GET /job-types, GET /job-types/{name}, GET /webhooks/deliveries,
    GET /webhooks/events, GET /usage, GET /pool/stats`,
  build: `POST /job-types/{name}/build, GET /job-types/{name}/build, PUT /job-types/{name},
    DELETE /job-types/{name}`,
  monitor: "GET /metrics, GET /pool/history",
  agents: `GET /hosts, POST /hosts/invitations, POST /hosts/{id}/revoke, POST /hosts/{id}/rotate,
    POST /agents/{id}/drain, POST /agents/{id}/resume`,
  admin: `POST /keys, GET /keys, POST /keys/{id}/rotate, POST /keys/{id}/revoke, GET /tenants,
    GET /tenants/{name}, PUT /tenants/{name}, GET /audit`,
};
const scopeOf = new Map(
  Scope.options.flatMap((scope) =>
    needs[scope].split(/,\s*/).map((route): [string, ScopeName] => [route, scope]),
  ),
);
const free = ["/health", "/health/live", "/health/ready", "/docs", "/openapi.json", "/key"];

interface Described {
  paths: Record<string, Record<string, { security: Record<string, string[]>[] }>>;
}

export const keyRows = on("with keys", [
  test("Each endpoint takes the keys that have its scope; to others it is 403, which names the scope; the OpenAPI document names it too", async (api) => {
    const keys = await Promise.all(
      Scope.options.map(async (scope) => {
        const { key } = await newKey(api, { scopes: [scope] });
        return { scope, key };
      }),
    );
    const { paths } = body(await api.get("/openapi.json", operator)) as Described;
    const seen = new Set<string>();
    for (const [path, methods] of Object.entries(paths)) {
      for (const [name, { security }] of Object.entries(methods)) {
        const method = name.toUpperCase();
        const needed = scopeOf.get(`${method === "HEAD" ? "GET" : method} ${path}`);
        if (needed === undefined) expect(free).toContain(path);
        if (needed === undefined || path === "/webhooks/events") continue;
        seen.add(`${method === "HEAD" ? "GET" : method} ${path}`);
        expect(security).toEqual([{ ApiKey: [needed] }, { Bearer: [needed] }]);
        const target = path.replaceAll(/\{\w+\}/g, "unknown");
        const asked = keys.map(async ({ scope, key }) => {
          const reply = await api.send(method, target, { headers: bearer(key) });
          return { scope, reply };
        });
        for (const { scope, reply } of await Promise.all(asked)) {
          const rule = `${method} ${path} with ${scope}: ${reply.status}`;
          expect([rule, reply.status === 403]).toEqual([rule, scope !== needed]);
          if (scope === needed || method === "HEAD") continue;
          expect(problemOf(reply).detail).toContain(`scope ${needed}:`);
        }
      }
    }
    expect(seen.size).toBe(scopeOf.size - 1);
  }),
  test("Any key reads the API's description, which is 401 without one, and gets 404 and 405 where there is no endpoint", async (api) => {
    const { key } = await newKey(api, { scopes: ["monitor"] });
    const assets = ["/docs/start.js", "/docs/swagger-ui.css"];
    for (const path of ["/docs", "/openapi.json", "/llms.txt", ...assets]) {
      expect(await statusOf(api, key, path)).toBe(200);
      expect((await api.get(path)).status).toBe(401);
    }
    expect(await statusOf(api, key, "/nowhere")).toBe(404);
    expect((await api.send("PUT", "/executions", { headers: bearer(key) })).status).toBe(405);
  }),
  test("A key with any scope can read at GET /key what it may do", async (api) => {
    const tenant = "own-key";
    for (const scope of Scope.options) {
      const { key } = await newKey(api, { name: "mine", tenant, scopes: [scope] });
      const own = { name: "mine", tenant, scopes: [scope] };
      expect(OwnKey.strict().parse(body(await api.get("/key", bearer(key))))).toEqual(own);
    }
  }),
  test("GET /key of a configured key names its list; the tenant of a request is not the key's", async (api) => {
    await newKey(api, { tenant: "own-key", scopes: ["read"] });
    for (const tenant of ["own-key", "*"]) {
      const reply = await api.get("/key", { ...operator, "X-Airlock-Tenant": tenant });
      const scopes = Scope.options;
      expect(body(reply)).toEqual({ name: "operator_keys", tenant: "default", scopes });
    }
    const { name, scopes } = OwnKey.parse(body(await api.get("/key", bearer(apiKeys[0]))));
    expect({ name, scopes }).toEqual({
      name: "api_keys",
      scopes: Scope.options.filter((scope) => scope !== "agents" && scope !== "admin"),
    });
    expect((await api.get("/key")).status).toBe(401);
  }),
  test("GET /pool/stats shows agents to keys with the scope monitor only", async (api) => {
    await api.agent().poll({ free_slots: 0 });
    const agents = async (scopes: ScopeName[]) => {
      const { key } = await newKey(api, { scopes });
      return PoolStats.parse(body(await api.get("/pool/stats", bearer(key)))).agents.length;
    };
    expect(await agents(["read"])).toBe(0);
    expect(await agents(["read", "monitor"])).toBeGreaterThan(0);
  }),
  test("POST /keys shows the key once; GET /keys lists it without the key, for its tenant", async (api) => {
    const tenant = "listed";
    const made = await newKey(api, { name: "ci", tenant, scopes: ["run", "read"] });
    expect(made).toMatchObject({ name: "ci", tenant, scopes: ["run", "read"] });
    expect(made).toMatchObject({ expires_at: null, revoked_at: null, last_used_at: null });
    const { key, ...shown } = made;
    const reply = await api.get(`/keys?tenant=${tenant}`, operator);
    expect(ApiKeyList.parse(body(reply))).toEqual({ keys: [shown] });
    expect(reply.text).not.toContain(key);
    expect(body(await api.get("/keys?tenant=other", operator))).toEqual({ keys: [] });
    expect(await statusOf(api, key)).toBe(200);
    expect(await statusOf(api, key.slice(0, -1))).toBe(401);
    const two = { "X-API-Key": apiKeys[0], ...bearer(key) };
    expect((await api.get("/executions", two)).status).toBe(401);
  }),
  test("A key is made and rotated in the form that E2B's clients ask for, if that is wanted", async (api) => {
    const made = await newKey(api, { scopes: ["read"], format: "e2b" });
    const reply = await api.post(`/keys/${made.id}/rotate`, { format: "e2b" }, operator);
    for (const { key } of [made, NewApiKey.parse(body(reply))]) {
      expect(key).toMatch(/^e2b_[0-9a-f]{64}$/);
      expect(await statusOf(api, key)).toBe(200);
    }
  }),
  test("A faulty request for a key names its fault", async (api) => {
    const faulty: [field: string, fields: object][] = [
      ["scopes", { scopes: [] }],
      ["scopes", { scopes: ["run", "run"] }],
      ["scopes.0", { scopes: ["root"] }],
      ["tenant", { tenant: "A" }],
      ["name", { name: "a\u0007" }],
      ["name", { name: "shell" }],
      ["expires_in_s", { expires_in_s: 1 }],
      ["format", { format: "hex" }],
    ];
    for (const [field, fields] of faulty) {
      const request = { name: "ci", scopes: ["run"], ...fields };
      expectFault(await api.post("/keys", request, operator), field);
    }
  }),
  test("No key makes or rotates a key with a scope that it lacks", async (api) => {
    const { key } = await newKey(api, { scopes: ["admin", "read"] });
    const more = await api.post("/keys", { name: "x", scopes: ["read", "run"] }, bearer(key));
    expect(more.status).toBe(403);
    expect(problemOf(more).detail).toContain("lacks run");
    const { id } = await newKey(api, { scopes: ["run"] });
    expect((await api.post(`/keys/${id}/rotate`, {}, bearer(key))).status).toBe(403);
    const equal = { name: "x", scopes: ["read", "admin"] };
    expect((await api.post("/keys", equal, bearer(key))).status).toBe(201);
  }),
  test("A rotated key keeps its id; the old ones hold as long as old_valid_s of their rotation said, or until one with 0", async (api) => {
    const { id, key } = await newKey(api, { scopes: ["read"] });
    const first = await api.post(`/keys/${id}/rotate`, undefined, operator);
    const rotated = NewApiKey.parse(body(first));
    expect(rotated).toMatchObject({ id, old_valid_until: expect.any(String) as string });
    expect([await statusOf(api, key), await statusOf(api, rotated.key)]).toEqual([200, 200]);
    // Again, as a client does that lost the answer: programs still have the first key.
    const rotation = (old_valid_s: number) =>
      api.post(`/keys/${id}/rotate`, { old_valid_s }, operator);
    const again = NewApiKey.parse(body(await rotation(60)));
    expect(again.old_valid_until).toBe(rotated.old_valid_until);
    for (const each of [key, rotated.key, again.key]) expect(await statusOf(api, each)).toBe(200);
    for (let n = 2; n < 10; n++) expect((await rotation(60)).status).toBe(200);
    const more = await rotation(60);
    expect([more.status, problemOf(more).detail]).toEqual([
      409,
      expect.stringContaining("old_valid_s 0"),
    ]);
    expect(await statusOf(api, key)).toBe(200);
    const reply = await rotation(0);
    const last = NewApiKey.parse(body(reply));
    expect(last).not.toHaveProperty("old_valid_until");
    for (const old of [key, rotated.key, again.key]) await becomesVoid(api, old);
    expect(await statusOf(api, last.key)).toBe(200);
  }),
  test("A revoked key is 401 within a second, and a repeat changes nothing; it cannot be rotated", async (api) => {
    const { id, key } = await newKey(api, { scopes: ["read"] });
    expect(await statusOf(api, key)).toBe(200);
    const first = ApiKey.parse(body(await api.post(`/keys/${id}/revoke`, undefined, operator)));
    expect(first.revoked_at).not.toBeNull();
    await becomesVoid(api, key);
    const again = await api.post(`/keys/${id}/revoke`, undefined, operator);
    expect(body(again)).toMatchObject({ revoked_at: first.revoked_at });
    expect((await api.post(`/keys/${id}/rotate`, {}, operator)).status).toBe(409);
    expect((await api.post("/keys/none/rotate", {}, operator)).status).toBe(404);
    expect((await api.post("/keys/none/revoke", undefined, operator)).status).toBe(404);
  }),
  test("Streams and waiting requests of a revoked key end", async (api) => {
    const { id, key } = await newKey(api, { tenant: "waits", scopes: ["run", "read"] });
    const submitted = await api.post("/execute/async", { code: "1" }, bearer(key));
    const { job_id } = SubmittedJob.parse(body(submitted));
    const { cursor } = body(await api.get("/webhooks/events", bearer(key))) as { cursor: string };
    const waits = [
      api.get(`/jobs/${job_id}/result?wait=true&timeout=600`, bearer(key)),
      api.get(`/webhooks/events?after=${cursor}&wait=20`, bearer(key)),
    ];
    const follower = await Follower.open(api.url, `/jobs/${job_id}/events`, bearer(key));
    await api.post(`/keys/${id}/revoke`, undefined, operator);
    await follower.rest();
    expect(follower.seen.map(({ event }) => event)).not.toContain("end");
    for (const wait of waits) expect((await wait).status).toBe(401);
    const ofTenant = { ...operator, "X-Airlock-Tenant": "waits" };
    const cancelled = await api.post(`/jobs/${job_id}/cancel`, undefined, ofTenant);
    expect(cancelled.status).toBe(200);
  }),
]);

/** A key of a new tenant with these limits. */
async function limited(api: Api, tenant: string, limits: object, by = operator) {
  expect((await api.sendJson("PUT", `/tenants/${tenant}`, limits, by)).status).toBe(200);
  const { key } = await newKey(api, { tenant, scopes: ["run", "read"] }, by);
  return bearer(key);
}

/** Ends what waits: rows after this one have agents, too. */
async function cancelWaiting(api: Api, key: Record<string, string>): Promise<void> {
  const { items } = body(await api.get("/executions?status=queued", key)) as ExecutionPage;
  for (const { execution_id } of items)
    await api.post(`/jobs/${execution_id}/cancel`, undefined, key);
}

const code = { code: "print(1)" };
const usage = async (api: Api, key: Record<string, string>) =>
  Usage.parse(body(await api.get("/usage", key))).usage;

export const quotaRows = on("with keys", [
  test("A tenant with max_queued waiting jobs gets no more: 429 quota_exceeded, with what it uses; a repeat finds its job", async (api) => {
    const key = await limited(api, "queued", { max_queued: 2 });
    const first = { ...code, idempotency_key: "first" };
    expect((await api.post("/execute/async", first, key)).status).toBe(202);
    const batch = await api.post("/execute/batch", { jobs: [code, code] }, key);
    const { jobs } = body(batch) as SubmittedBatch;
    expect(jobs[0]).toMatchObject({ status: "queued" });
    const full = { quota: "max_queued", limit: 2, used: 2 };
    expect(jobs[1]).toMatchObject({ code: "quota_exceeded", ...full });
    const refused = await api.post("/execute/async", code, key);
    expect(refused.status).toBe(429);
    expect(problemOf(refused)).toMatchObject({ code: "quota_exceeded", ...full });
    expect(refused.headers.get("Retry-After")).toBe("5");
    expect((await api.post("/execute/async", first, key)).status).toBe(202);
    expect(await usage(api, key)).toMatchObject({ queued: 2, running: 0 });
    await cancelWaiting(api, key);
    expect(await usage(api, key)).toMatchObject({ queued: 0, running: 0 });
  }),
  test("An atomic batch that is larger than a limit of its tenant is 422, not to be sent again; one that fits later is 429; a job too large alone is 413", async (api) => {
    const key = await limited(api, "batched", { max_queued: 2, max_stored_bytes: 100 });
    const send = (jobs: object[]) => api.post("/execute/batch", { jobs, atomic: true }, key);
    const large = { code: "#".repeat(60) };
    for (const [jobs, limit] of [
      [[code, code, code], "may have 2 waiting jobs (max_queued)"],
      [[large, large], "tenant batched may store 100 bytes (max_stored_bytes), and these are 124"],
    ] as const) {
      const refused = await send([...jobs]);
      expect(problemOf(refused)).toMatchObject({ status: 422, code: "batch_too_large" });
      expect(problemOf(refused).detail).toContain(limit);
      expect(refused.headers.get("Retry-After")).toBeNull();
    }
    expect((await api.post("/execute/async", code, key)).status).toBe(202);
    const later = await send([code, code]);
    expect(problemOf(later)).toMatchObject({ status: 429, quota: "max_queued", used: 1 });
    await cancelWaiting(api, key);
    const alone = await api.post("/execute/async", { code: "#".repeat(120) }, key);
    expect(problemOf(alone)).toMatchObject({ status: 413, code: "too_large" });
    expect((await send([code, code])).status).toBe(202);
    await cancelWaiting(api, key);
  }),
  test("A tenant's stored bytes refuse submissions and uploads, and a removed file counts until it is gone", async (api) => {
    const key = await limited(api, "stored", { max_stored_bytes: 1000 });
    const upload = (bytes: number) =>
      api.send("POST", "/files?name=a", {
        headers: { ...key, "Content-Type": "application/octet-stream" },
        body: new Uint8Array(bytes),
      });
    const stored = await upload(900);
    expect(stored.status).toBe(201);
    const refusals = [
      await upload(101),
      await api.post("/execute/async", { code: "#".repeat(101) }, key),
    ];
    for (const refused of refusals) {
      expect(refused.status).toBe(429);
      const full = { quota: "max_stored_bytes", limit: 1000, used: 900 };
      expect(problemOf(refused)).toMatchObject(full);
      expect(refused.headers.get("Retry-After")).toBe("60");
    }
    const { file_id } = body(stored) as { file_id: string };
    expect((await api.send("DELETE", `/files/${file_id}`, { headers: key })).status).toBe(200);
    expect(await usage(api, key)).toMatchObject({ stored_bytes: 900 });
  }),
  test("A tenant without CPU time left gets no more until midnight (UTC)", async (api) => {
    const key = await limited(api, "spent", { max_cpu_s_day: 0 });
    const refused = await api.post("/execute/async", code, key);
    expect(refused.status).toBe(429);
    expect(problemOf(refused)).toMatchObject({ quota: "max_cpu_s_day", limit: 0, used: 0 });
    const waitS = Number(refused.headers.get("Retry-After"));
    expect(waitS).toBeGreaterThan(0);
    expect(waitS).toBeLessThanOrEqual(86_400);
  }),
  test("A tenant runs max_running jobs at once: others wait, and say so, while another tenant's run", async (api) => {
    const key = await limited(api, "busy", { max_running: 1 });
    const other = await limited(api, "light", {});
    const ids: string[] = [];
    for (const one of [key, key, other]) {
      const reply = await api.post("/execute/async", code, one);
      ids.push((body(reply) as { job_id: string }).job_id);
    }
    const agent = api.agent();
    const first = await agent.takeJob();
    const second = await agent.takeJob();
    expect([first.execution_id, second.execution_id]).toEqual([ids[0], ids[2]]);
    const waiting = body(await api.get(`/jobs/${ids[1]}`, key)) as { message: string };
    expect(waiting.message).toContain("max_running 1");
    await agent.result(first.lease_id);
    const third = await agent.takeJob();
    expect(third.execution_id).toBe(ids[1]);
    expect(await usage(api, key)).toMatchObject({ queued: 0, running: 1 });
    for (const { lease_id } of [second, third]) await agent.result(lease_id);
  }),
]);

async function entries(api: Api, query = ""): Promise<AuditEntry[]> {
  const reply = await api.get(`/audit?limit=1000${query}`, operator);
  expect(reply.status).toBe(200);
  return AuditPage.parse(body(reply)).items;
}

/** Entries about a thing, the oldest first. */
const about = async (api: Api, target: string): Promise<string[]> =>
  (await entries(api))
    .filter((entry) => entry.target === target)
    .map(({ action }) => action)
    .toReversed();

export const auditRows: Row[] = [
  ...on("with keys", [
    test("The audit log has who removed a record or a dead letter; a repeat makes no entry", async (api) => {
      const key = { "X-API-Key": apiKeys[0] };
      const submitted = await api.post("/execute/async", { code: "print(1)" }, key);
      const { job_id } = body(submitted) as { job_id: string };
      const agent = api.agent();
      const { lease_id } = await agent.takeJob();
      const error = { type: "value_error", message: "no", phase: "execution" } as const;
      await agent.result(lease_id, { status: "failed", exit_code: 1, error });
      const letters = DeadLetterPage.parse(body(await api.get("/dlq?limit=1000", key)));
      const { id } = letters.items.find((letter) => letter.job_id === job_id)!;
      const remove = (path: string, status: number) =>
        api
          .send("DELETE", path, { headers: { ...key, "X-Correlation-ID": "audit-1" } })
          .then((reply) => expect(reply.status).toBe(status));
      await remove(`/dlq/${id}`, 200);
      await remove(`/dlq/${id}`, 404);
      await remove(`/executions/${job_id}`, 200);
      await remove(`/executions/${job_id}`, 404);

      expect(await about(api, String(id))).toEqual(["dlq.delete"]);
      expect(await about(api, job_id)).toEqual(["execution.delete"]);
      const [entry] = await entries(api, "&action=execution.delete&tenant=default");
      expect(entry).toMatchObject({
        target: job_id,
        tenant: "default",
        correlation_id: "audit-1",
        key_id: expect.any(String) as string,
        client_ip: expect.any(String) as string,
      });
      expect(JSON.stringify(entry)).not.toContain(apiKeys[0]);
    }),
    test("The audit log has what operators did with hosts and agents; a repeat of a revocation makes no entry", async (api) => {
      const agent = await api.connected({ free_slots: 0 });
      for (const word of ["drain", "resume"])
        expect((await api.post(`/agents/${agent.id}/${word}`, undefined, operator)).status).toBe(
          200,
        );
      expect(await about(api, agent.id)).toEqual(["agent.drain", "agent.resume"]);
      await api.post("/hosts/invitations", { name: "audit-host" }, operator);
      expect(await about(api, "audit-host")).toEqual(["host.invite"]);
      await api.post("/hosts/none/revoke", undefined, operator);
      expect(await about(api, "none")).toEqual([]);
    }),
    test("Only an operator's key reads GET /audit and GET /hosts, and the refusal says so", async (api) => {
      for (const path of ["/audit", "/hosts"]) {
        const refused = problemOf(await api.get(path, { "X-API-Key": apiKeys[0] }));
        expect(refused.code).toBe("forbidden");
        expect(refused.detail).toContain("operator_keys");
      }
      expect((await api.get("/audit?action=nothing", operator)).status).toBe(400);
    }),
  ]),
];
