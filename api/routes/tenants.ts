import { createRoute, z, type OpenAPIHono } from "@hono/zod-openapi";
import { Tenant, TenantList } from "../../shared/wire/client/tenants.ts";
import { TenantLimits, TenantName } from "../../shared/wire/tenant.ts";
import type { Deps } from "../deps.ts";
import { jsonBody } from "../http/body/json.ts";
import type { AppEnv } from "../http/context.ts";
import { actorOf } from "../http/origin.ts";
import { limitTenant, showTenant, showTenants } from "../keys/tenants.ts";
import { tenant as example } from "../openapi/examples/keys.ts";
import { tenantLimits } from "../openapi/examples/tenants.ts";
import { body, json, problems } from "../openapi/responses/bodies.ts";

const tags = ["Keys and tenants"];
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
    tags,
    summary: "Tenants with limits and use, by name",
    responses: { 200: json(TenantList, "The tenants.", { example: { tenants: [example] } }) },
  });
  app.openapi(list, async (c) => c.json({ tenants: await showTenants(deps) }, 200));

  const single = createRoute({
    method: "get",
    path: "/tenants/{name}",
    operationId: "getTenant",
    tags,
    summary: "A tenant with limits and use",
    request: { params },
    responses: {
      200: json(Tenant, "The tenant as it is now.", { example }),
      ...problems("invalid_request", "not_found"),
    },
  });
  app.openapi(single, async (c) => c.json(await showTenant(deps, c.req.valid("param").name), 200));

  const limit = createRoute({
    method: "put",
    path: "/tenants/{name}",
    operationId: "setTenantLimits",
    tags,
    summary: "Set a tenant's limits; make the tenant",
    description: "Replaces all its limits: one that is not given is none.",
    middleware: jsonBody(deps.config.max_request_bytes),
    request: { params, ...body(TenantLimits, { example: tenantLimits }) },
    responses: {
      200: json(Tenant, "The tenant after the call.", { example }),
      ...problems("invalid_request", "too_large"),
    },
  });
  app.openapi(limit, async (c) => {
    const { name } = c.req.valid("param");
    return c.json(await limitTenant(deps, actorOf(deps, c), name, c.req.valid("json")), 200);
  });
}
