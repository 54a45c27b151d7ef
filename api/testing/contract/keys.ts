import { randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { expect } from "vitest";
import {
  ApiKey,
  ApiKeyList,
  NewApiKey,
  OwnKey,
  Scope,
  type Scope as ScopeName,
} from "../../../shared/wire/client/keys.ts";
import { SubmittedJob } from "../../../shared/wire/client/submission.ts";
import { PoolStats } from "../../../shared/wire/health.ts";
import { Follower } from "../follower.ts";
import { type Api, body, expectFault, problemOf } from "./api.ts";
import { each, on } from "./row.ts";
import { apiKeys, operatorKey } from "./servers.ts";

export const operator = { "X-API-Key": operatorKey };
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
  build: "POST /job-types/{name}/build, GET /job-types/{name}/build",
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
  {
    rule: "Each endpoint takes the keys that have its scope; to others it is 403, which names the scope; the OpenAPI document names it too",
    async check(api) {
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
          for (const { scope, key } of keys) {
            const target = path.replaceAll(/\{\w+\}/g, "unknown");
            const reply = await api.send(method, target, { headers: bearer(key) });
            const rule = `${method} ${path} with ${scope}: ${reply.status}`;
            expect([rule, reply.status === 403]).toEqual([rule, scope !== needed]);
            if (scope === needed || method === "HEAD") continue;
            expect(problemOf(reply).detail).toContain(`scope ${needed}:`);
          }
        }
      }
      expect(seen.size).toBe(scopeOf.size - 1);
    },
  },
  {
    rule: "Any key reads the API's description, and gets 404 and 405 where there is no endpoint",
    async check(api) {
      const { key } = await newKey(api, { scopes: ["monitor"] });
      for (const path of ["/docs", "/openapi.json", "/llms.txt"]) {
        expect(await statusOf(api, key, path)).toBe(200);
      }
      expect(await statusOf(api, key, "/nowhere")).toBe(404);
      expect((await api.send("PUT", "/executions", { headers: bearer(key) })).status).toBe(405);
    },
  },
  ...each(
    Scope.options,
    (scope) => `A key with the scope ${scope} can read at GET /key what it may do`,
    async (api, scope) => {
      const tenant = "own-key";
      const { key } = await newKey(api, { name: "mine", tenant, scopes: [scope] });
      const own = { name: "mine", tenant, scopes: [scope] };
      expect(OwnKey.strict().parse(body(await api.get("/key", bearer(key))))).toEqual(own);
    },
  ),
  {
    rule: "GET /key of a configured key names its list; the tenant of a request is not the key's",
    async check(api) {
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
    },
  },
  {
    rule: "GET /pool/stats shows agents to keys with the scope monitor only",
    async check(api) {
      await api.agent().poll({ free_slots: 0 });
      const agents = async (scopes: ScopeName[]) => {
        const { key } = await newKey(api, { scopes });
        return PoolStats.parse(body(await api.get("/pool/stats", bearer(key)))).agents.length;
      };
      expect(await agents(["read"])).toBe(0);
      expect(await agents(["read", "monitor"])).toBeGreaterThan(0);
    },
  },
  {
    rule: "POST /keys shows the key once; GET /keys lists it without the key, for its tenant",
    async check(api) {
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
    },
  },
  {
    rule: "A key is made and rotated in the form that E2B's clients ask for, if that is wanted",
    async check(api) {
      const made = await newKey(api, { scopes: ["read"], format: "e2b" });
      const reply = await api.post(`/keys/${made.id}/rotate`, { format: "e2b" }, operator);
      for (const { key } of [made, NewApiKey.parse(body(reply))]) {
        expect(key).toMatch(/^e2b_[0-9a-f]{64}$/);
        expect(await statusOf(api, key)).toBe(200);
      }
    },
  },
  {
    rule: "A faulty request for a key names its fault",
    async check(api) {
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
    },
  },
  {
    rule: "No key makes or rotates a key with a scope that it lacks",
    async check(api) {
      const { key } = await newKey(api, { scopes: ["admin", "read"] });
      const more = await api.post("/keys", { name: "x", scopes: ["read", "run"] }, bearer(key));
      expect(more.status).toBe(403);
      expect(problemOf(more).detail).toContain("lacks run");
      const { id } = await newKey(api, { scopes: ["run"] });
      expect((await api.post(`/keys/${id}/rotate`, {}, bearer(key))).status).toBe(403);
      const equal = { name: "x", scopes: ["read", "admin"] };
      expect((await api.post("/keys", equal, bearer(key))).status).toBe(201);
    },
  },
  {
    rule: "A rotated key keeps its id; the old ones hold as long as old_valid_s of their rotation said, or until one with 0",
    async check(api) {
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
    },
  },
  {
    rule: "A revoked key is 401 within a second, and a repeat changes nothing; it cannot be rotated",
    async check(api) {
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
    },
  },
  {
    rule: "Streams and waiting requests of a revoked key end",
    async check(api) {
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
    },
  },
  {
    rule: "Two different keys in one request are 401, whoever made them",
    async check(api) {
      const { key } = await newKey(api, { scopes: ["read"] });
      const both = async (other: string) =>
        (await api.get("/executions", { "X-API-Key": other, ...bearer(key) })).status;
      expect(await both(apiKeys[0])).toBe(401);
      expect(await both((await newKey(api, { scopes: ["read"] })).key)).toBe(401);
      expect(await both(key)).toBe(200);
    },
  },
  {
    rule: "Unknown keys of one client cause a limited number of look-ups; known keys at its address go on, and new ones hold at once",
    async check(api) {
      const { key } = await newKey(api, { scopes: ["read"] });
      expect(await statusOf(api, key)).toBe(200);
      const answers = new Set<number>();
      for (let n = 0; n < 100; n++) {
        answers.add(await statusOf(api, `alk_${randomBytes(32).toString("base64url")}`));
      }
      expect(answers).toEqual(new Set([401, 429]));
      expect(await statusOf(api, key)).toBe(200);
      const fresh = await newKey(api, { scopes: ["read"] });
      expect(await statusOf(api, fresh.key)).toBe(200);
      const rotation = body(await api.post(`/keys/${fresh.id}/rotate`, undefined, operator));
      expect(await statusOf(api, NewApiKey.parse(rotation).key)).toBe(200);
      expect(await statusOf(api, apiKeys[0])).toBe(200);
    },
  },
]);
