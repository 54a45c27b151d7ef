import { createRoute, type OpenAPIHono, z } from "@hono/zod-openapi";
import type { Context } from "hono";
import {
  ApiKey,
  ApiKeyList,
  AuditAction,
  type AuditEntry,
  AuditPage,
  KeyRequest,
  KeyRotation,
  NewApiKey,
  OwnKey,
  Tenant,
  TenantLimits,
  TenantList,
  TenantName,
  Usage,
} from "../../shared/wire/access.ts";
import { joinedHost } from "../agents/hosts.ts";
import type { Deps, RouteDeps } from "../deps.ts";
import { AppError, notFound } from "../errors.ts";
import { jsonBody, optionalJsonBody } from "../http/body.ts";
import { actorOf, type AppEnv } from "../http/context.ts";
import { beforeQuery, body, idParam, json, pageQuery, problem } from "../http/responses.ts";
import { timestamp } from "../jobs/read.ts";
import { type AuditRow, findTenant, listAudit, usageOf } from "./sql.ts";
import {
  createKey,
  limitTenant,
  type Maker,
  revokeKey,
  rotateKey,
  showKeys,
  showTenant,
  showTenants,
} from "./tenants.ts";

const tenantLimits: TenantLimits = {
  max_queued: 1000,
  max_running: 20,
  max_stored_bytes: 10_000_000_000,
  max_cpu_s_day: null,
  max_requests: 600,
};

const usage: Usage = {
  tenant: "search",
  usage: { queued: 12, running: 20, stored_bytes: 48_211_390, cpu_s_today: 5321.4 },
  limits: tenantLimits,
};

const apiKey: ApiKey = {
  id: "019aa5f0-6c1e-7c3a-8d53-2f1f3a6b9c10",
  name: "ci",
  tenant: "search",
  scopes: ["run", "read"],
  created_at: "2026-11-21T09:30:00.000Z",
  created_by: null,
  expires_at: "2027-02-19T09:30:00.000Z",
  revoked_at: null,
  last_used_at: "2026-11-22T09:45:00.000Z",
};

const ownKey: OwnKey = { name: "ci", tenant: "search", scopes: ["run", "read"] };

/** Not one that anybody has. */
const key = `alk_${"x".repeat(43)}`;

const tenant: Tenant = {
  name: "search",
  created_at: "2026-11-21T09:30:00.000Z",
  limits: tenantLimits,
  usage: usage.usage,
};

const keyParam = idParam("The `id` of a key, from `GET /keys`.", apiKey.id);

/**
 * Managed API keys, without those of the configuration.
 *
 * @param relist Is called when a key was made.
 */
export function keyRoutes(app: OpenAPIHono<AppEnv>, deps: Deps, relist: () => void): void {
  const { max_request_bytes } = deps.config;
  const maker = (c: Context<AppEnv>): Maker => ({
    ...actorOf(deps, c),
    scopes: c.get("caller")!.scopes,
  });

  const own = createRoute({
    method: "get",
    path: "/key",
    operationId: "getOwnKey",
    summary: "What your key may do",
    description: "Needs no scope. `X-Airlock-Tenant` makes no difference.",
    responses: { 200: json(OwnKey, "The key of the request.", { example: ownKey }) },
  });
  app.openapi(own, (c) => {
    const { keyName, tenant, scopes } = c.get("caller")!;
    return c.json({ name: keyName, tenant, scopes: [...scopes] }, 200);
  });

  const create = createRoute({
    method: "post",
    path: "/keys",
    operationId: "createKey",
    summary: "Make a key",
    description: "The answer shows the key, which is shown nowhere else.",
    middleware: jsonBody(max_request_bytes),
    request: body(KeyRequest, {
      example: { name: "ci", tenant: "search", scopes: ["run", "read"], expires_in_s: 7_776_000 },
    }),
    responses: {
      201: json(NewApiKey, "The new key.", { example: { ...apiKey, last_used_at: null, key } }),
    },
  });
  app.openapi(create, async (c) => {
    const { expires_in_s, tenant, ...request } = c.req.valid("json");
    const wanted = {
      ...request,
      tenant: tenant ?? c.get("client").db.tenant,
      expiresInMs: expires_in_s === undefined ? null : expires_in_s * 1000,
    };
    const made = await createKey(deps, maker(c), wanted);
    relist();
    return c.json(made, 201);
  });

  const list = createRoute({
    method: "get",
    path: "/keys",
    operationId: "listKeys",
    summary: "Keys that operators made, the oldest first",
    description:
      "Those of all tenants, also the revoked ones. Keys of the configuration are not shown.",
    request: {
      query: z.object({
        tenant: TenantName.optional().openapi({ description: "Only keys of this tenant." }),
      }),
    },
    responses: {
      200: json(ApiKeyList, "The keys.", { example: { keys: [apiKey] } }),
    },
  });
  app.openapi(list, async (c) =>
    c.json({ keys: await showKeys(deps, c.req.valid("query").tenant) }, 200),
  );

  const rotate = createRoute({
    method: "post",
    path: "/keys/{id}/rotate",
    operationId: "rotateKey",
    summary: "Replace a key",
    description:
      "The answer shows the new key. The old one holds for `old_valid_s` more seconds. `id`, scopes and limits stay.",
    middleware: optionalJsonBody(max_request_bytes),
    request: { params: keyParam, ...body(KeyRotation, { example: { old_valid_s: 3600 } }, false) },
    responses: {
      200: json(NewApiKey, "The key after the call.", {
        example: { ...apiKey, old_valid_until: "2026-11-22T10:45:00.000Z", key },
      }),
      409: problem("conflict", {
        detail: "Key ci is revoked or has expired: make a new one with POST /keys.",
      }),
    },
  });
  app.openapi(rotate, async (c) => {
    const { old_valid_s, format } = c.req.valid("json");
    const { id } = c.req.valid("param");
    const rotated = await rotateKey(deps, maker(c), id, old_valid_s * 1000, format);
    relist();
    return c.json(rotated, 200);
  });

  const revoke = createRoute({
    method: "post",
    path: "/keys/{id}/revoke",
    operationId: "revokeKey",
    summary: "Void a key",
    description:
      "New requests with it are refused within a second, streams and waiting requests end within 5 s. Its jobs go on. A repeat changes nothing.",
    request: { params: keyParam },
    responses: {
      200: json(ApiKey, "The key after the call.", {
        example: { ...apiKey, revoked_at: "2026-11-22T10:00:00.000Z" },
      }),
    },
  });
  app.openapi(revoke, async (c) =>
    c.json(await revokeKey(deps, actorOf(deps, c), c.req.valid("param").id), 200),
  );
}

const params = z.object({
  name: TenantName.describe("The tenant's name.").openapi({
    param: { name: "name", in: "path" },
    example: "search",
  }),
});

/** Tenants and their limits. */
export function tenantRoutes(app: OpenAPIHono<AppEnv>, deps: Deps): void {
  const list = createRoute({
    method: "get",
    path: "/tenants",
    operationId: "listTenants",
    summary: "Tenants with limits and use, by name",
    responses: { 200: json(TenantList, "The tenants.", { example: { tenants: [tenant] } }) },
  });
  app.openapi(list, async (c) => c.json({ tenants: await showTenants(deps) }, 200));

  const single = createRoute({
    method: "get",
    path: "/tenants/{name}",
    operationId: "getTenant",
    summary: "A tenant with limits and use",
    request: { params },
    responses: {
      200: json(Tenant, "The tenant as it is now.", { example: tenant }),
    },
  });
  app.openapi(single, async (c) => c.json(await showTenant(deps, c.req.valid("param").name), 200));

  const limit = createRoute({
    method: "put",
    path: "/tenants/{name}",
    operationId: "setTenantLimits",
    summary: "Set a tenant's limits; make the tenant",
    description: "Replaces all its limits: one that is not given is none.",
    middleware: jsonBody(deps.config.max_request_bytes),
    request: { params, ...body(TenantLimits, { example: tenantLimits }) },
    responses: {
      200: json(Tenant, "The tenant after the call.", { example: tenant }),
    },
  });
  app.openapi(limit, async (c) => {
    const { name } = c.req.valid("param");
    return c.json(await limitTenant(deps, actorOf(deps, c), name, c.req.valid("json")), 200);
  });
}

const getUsage = createRoute({
  method: "get",
  path: "/usage",
  operationId: "getUsage",
  summary: "What your tenant uses, and its limits",
  description:
    "A submission that a limit refuses is 429 `quota_exceeded`; jobs above `max_running` wait.",
  responses: { 200: json(Usage, "The tenant as it is now.", { example: usage }) },
});

export function usageRoute(app: OpenAPIHono<AppEnv>, { now }: RouteDeps): void {
  app.openapi(getUsage, async (c) => {
    const { db } = c.get("client");
    if (db.tenant === "*") {
      throw new AppError("invalid_request", "Name one tenant: GET /tenants has all of them.");
    }
    const row = await findTenant(db, db.tenant);
    if (!row) throw notFound(`Tenant ${db.tenant}`);
    return c.json(usageOf(row, now()), 200);
  });
}

/** The audit log: who changed keys, limits, hosts, agents and images, and who removed records. */
export function auditRoutes(app: OpenAPIHono<AppEnv>, deps: Deps): void {
  const list = createRoute({
    method: "get",
    path: "/audit",
    operationId: "listAudit",
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

const auditPage: AuditPage = {
  items: [
    {
      id: 7,
      at: "2026-11-22T10:00:00.000Z",
      key_id: "0198c39f-2a41-7d6c-8b5e-4f3a2b1c0d9e",
      key_name: "ops",
      tenant: "default",
      action: "host.revoke",
      target: joinedHost.id,
      detail: null,
      correlation_id: "0198c3a0-5b1c-7e2d-9f3e-1a2b3c4d5e6f",
      client_ip: "203.0.113.7",
    },
  ],
  limit: 50,
  has_more: false,
  count: 1,
};
