import { createRoute, z, type OpenAPIHono } from "@hono/zod-openapi";
import { AuditAction, type AuditEntry, AuditPage } from "../../shared/wire/client/audit.ts";
import { TenantName } from "../../shared/wire/tenant.ts";
import type { Deps } from "../deps.ts";
import type { AppEnv } from "../http/context.ts";
import { timestamp } from "../jobs/record.ts";
import { auditPage } from "../openapi/examples/audit.ts";
import { beforeQuery, pageQuery } from "../openapi/parameters.ts";
import { json, problems } from "../openapi/responses/bodies.ts";
import { type AuditRow, listAudit } from "../store/audit.ts";

/** The audit log: who changed keys, limits, hosts, agents and images, and who removed records. */
export function auditRoutes(app: OpenAPIHono<AppEnv>, deps: Deps): void {
  const list = createRoute({
    method: "get",
    path: "/audit",
    operationId: "listAudit",
    tags: ["Keys and tenants"],
    summary: "The audit log, newest first",
    description:
      "Changes of all tenants. An entry is stored with its change, in one transaction. Nobody can change an entry; the service removes it after `audit_retention_days`.",
    request: {
      query: z.object({
        action: AuditAction.optional(),
        tenant: TenantName.optional(),
        before: beforeQuery("Id of the last entry of the previous page: only older entries."),
        limit: pageQuery.limit,
      }),
    },
    responses: {
      200: json(AuditPage, "A page of entries.", { example: auditPage }),
      ...problems("invalid_request"),
    },
  });
  app.openapi(list, async (c) => {
    const { limit, ...filter } = c.req.valid("query");
    const found = await listAudit(deps.db, filter, limit + 1);
    const items = found.slice(0, limit).map(toEntry);
    return c.json({ items, limit, has_more: found.length > limit, count: items.length }, 200);
  });
}

function toEntry({ keyId, keyName, correlationId, clientIp, ...row }: AuditRow): AuditEntry {
  return {
    id: row.id,
    at: timestamp(row.at),
    key_id: keyId,
    key_name: keyName,
    tenant: row.tenant,
    action: row.action as AuditAction,
    target: row.target,
    detail: row.detail,
    correlation_id: correlationId,
    client_ip: clientIp,
  };
}
