import { expect } from "vitest";
import { type AuditEntry, AuditPage } from "../../../shared/wire/client/audit.ts";
import { DeadLetterPage } from "../../../shared/wire/client/dead-letter.ts";
import { type Api, body, problemOf } from "./api.ts";
import type { Row } from "./row.ts";
import { apiKeys, operatorKey } from "./servers.ts";

const operator = { "X-API-Key": operatorKey };

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
  {
    rule: "The audit log has who removed a record or a dead letter; a repeat makes no entry",
    server: "with keys",
    async check(api) {
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
    },
  },
  {
    rule: "The audit log has what operators did with hosts and agents; a repeat of a revocation makes no entry",
    server: "with keys",
    async check(api) {
      const agent = api.agent();
      await agent.poll({ free_slots: 0 });
      for (const word of ["drain", "resume"])
        expect((await api.post(`/agents/${agent.id}/${word}`, undefined, operator)).status).toBe(
          200,
        );
      expect(await about(api, agent.id)).toEqual(["agent.drain", "agent.resume"]);
      await api.post("/hosts/invitations", { name: "audit-host" }, operator);
      expect(await about(api, "audit-host")).toEqual(["host.invite"]);
      await api.post("/hosts/none/revoke", undefined, operator);
      expect(await about(api, "none")).toEqual([]);
    },
  },
  {
    rule: "GET /audit gives pages, newest first; only an operator's key reads it",
    server: "with keys",
    async check(api) {
      for (let n = 0; n < 3; n++)
        await api.post("/hosts/invitations", { name: `page-${n}` }, operator);
      const first = AuditPage.parse(body(await api.get("/audit?limit=2", operator)));
      expect(first).toMatchObject({ has_more: true, count: 2 });
      const before = first.items.at(-1)!.id;
      const next = AuditPage.parse(
        body(await api.get(`/audit?limit=2&before=${before}`, operator)),
      );
      expect(next.items[0]!.id).toBeLessThan(before);
      expect(problemOf(await api.get("/audit", { "X-API-Key": apiKeys[0] })).code).toBe(
        "forbidden",
      );
      expect((await api.get("/audit?action=nothing", operator)).status).toBe(400);
    },
  },
];
