import { expect } from "vitest";
import { Usage } from "../../../shared/wire/client/usage.ts";
import type { ExecutionPage } from "../../../shared/wire/execution.ts";
import type { SubmittedBatch } from "../../../shared/wire/client/batch.ts";
import { type Api, body, problemOf } from "./api.ts";
import { bearer, newKey, operator } from "./keys.ts";
import { on } from "./row.ts";
import { spareOperatorKey } from "./servers.ts";

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
  {
    rule: "A tenant with max_queued waiting jobs gets no more: 429 quota_exceeded, with what it uses; a repeat finds its job",
    async check(api) {
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
    },
  },
  {
    rule: "An atomic batch that is larger than a limit of its tenant is 422, not to be sent again; one that fits later is 429; a job too large alone is 413",
    async check(api) {
      const key = await limited(api, "batched", { max_queued: 2, max_stored_bytes: 100 });
      const send = (jobs: object[]) => api.post("/execute/batch", { jobs, atomic: true }, key);
      const large = { code: "#".repeat(60) };
      for (const [jobs, limit] of [
        [[code, code, code], "may have 2 waiting jobs (max_queued)"],
        [
          [large, large],
          "tenant batched may store 100 bytes (max_stored_bytes), and these are 124",
        ],
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
    },
  },
  {
    rule: "A tenant's stored bytes refuse submissions and uploads, and a removed file counts until it is gone",
    async check(api) {
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
    },
  },
  {
    rule: "A tenant without CPU time left gets no more until midnight (UTC)",
    async check(api) {
      const key = await limited(api, "spent", { max_cpu_s_day: 0 });
      const refused = await api.post("/execute/async", code, key);
      expect(refused.status).toBe(429);
      expect(problemOf(refused)).toMatchObject({ quota: "max_cpu_s_day", limit: 0, used: 0 });
      const waitS = Number(refused.headers.get("Retry-After"));
      expect(waitS).toBeGreaterThan(0);
      expect(waitS).toBeLessThanOrEqual(86_400);
    },
  },
  {
    rule: "A tenant runs max_running jobs at once: others wait, and say so, while another tenant's run",
    async check(api) {
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
    },
  },
  {
    rule: "max_requests counts the requests of all keys of a tenant together; then they are 429 with Retry-After",
    server: "with the rate limit of the contract",
    async check(api) {
      const spare = { "X-API-Key": spareOperatorKey };
      const first = await limited(api, "chatty", { max_requests: 3 }, spare);
      const { key } = await newKey(api, { tenant: "chatty", scopes: ["read"] }, spare);
      const second = bearer(key);
      for (const one of [first, second, first]) {
        expect((await api.get("/usage", one)).status).toBe(200);
      }
      for (const one of [first, second]) {
        const refused = await api.get("/usage", one);
        expect(refused.status).toBe(429);
        expect(problemOf(refused)).toMatchObject({ code: "rate_limited" });
        expect(problemOf(refused).detail).toContain("max_requests");
        const waitS = Number(refused.headers.get("Retry-After"));
        expect(waitS).toBeGreaterThan(0);
        expect(waitS).toBeLessThanOrEqual(60);
      }
    },
  },
]);
