import { randomBytes } from "node:crypto";
import { expect } from "vitest";
import { AuditPage } from "../../../shared/wire/client/audit.ts";
import { SubmittedJob } from "../../../shared/wire/client/submission.ts";
import { Tenant, TenantList } from "../../../shared/wire/client/tenants.ts";
import type { ExecutionPage } from "../../../shared/wire/execution.ts";
import { body, expectFault, problemOf } from "./api.ts";
import { bearer, newKey, operator } from "./keys.ts";
import { callMcp } from "./mcp.ts";
import { on } from "./row.ts";

const as = (tenant: string) => ({ ...operator, "X-Airlock-Tenant": tenant });

interface ToolResult {
  isError?: boolean;
  content: [{ text: string }];
}

export const tenantRows = on("with keys", [
  {
    rule: "An admin's key sees its own tenant's records, those of the tenant in X-Airlock-Tenant, or with * those of all, with the tenant",
    async check(api) {
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
    },
  },
  {
    rule: "MCP: a tool acts on the tenant in X-Airlock-Tenant, if the key has the scope admin; a tool that changes something names one tenant",
    async check(api) {
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
    },
  },
  {
    rule: "PUT /tenants/{name} makes the tenant and replaces its limits; a key sees its own tenant's",
    async check(api) {
      const put = (limits: object) => api.sendJson("PUT", "/tenants/limited", limits, operator);
      const first = Tenant.parse(body(await put({ max_queued: 5, max_cpu_s_day: 60 })));
      expect(first).toMatchObject({ name: "limited", usage: { queued: 0, running: 0 } });
      expect(first.limits).toMatchObject({ max_queued: 5, max_cpu_s_day: 60, max_running: null });
      const second = Tenant.parse(body(await put({ max_queued: 7 })));
      expect(second.limits).toMatchObject({ max_queued: 7, max_cpu_s_day: null });
      expectFault(await put({ max_queued: -1 }), "max_queued");
      expect(body(await api.get("/tenants/limited", operator))).toEqual(second);
      const { tenants } = TenantList.parse(body(await api.get("/tenants", operator)));
      expect(tenants.map(({ name }) => name)).toEqual(
        expect.arrayContaining(["default", "limited"]),
      );
      expect((await api.get("/tenants/nobody", operator)).status).toBe(404);
      const { key } = await newKey(api, { tenant: "limited", scopes: ["read"] });
      const usage = await api.get("/usage", bearer(key));
      expect(body(usage)).toMatchObject({ tenant: "limited", limits: { max_queued: 7 } });
    },
  },
  {
    rule: "The audit log has each change of keys and limits with who made it, and nothing of a change that was none",
    async check(api) {
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
    },
  },
]);
