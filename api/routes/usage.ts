import { createRoute, type OpenAPIHono } from "@hono/zod-openapi";
import { Usage } from "../../shared/wire/client/usage.ts";
import type { RouteDeps } from "../deps.ts";
import { AppError, notFound } from "../errors.ts";
import type { AppEnv } from "../http/context.ts";
import { usage } from "../openapi/examples/tenants.ts";
import { json } from "../openapi/responses/bodies.ts";
import { findTenant, usageOf } from "../store/tenants.ts";

const getUsage = createRoute({
  method: "get",
  path: "/usage",
  operationId: "getUsage",
  tags: ["Health"],
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
