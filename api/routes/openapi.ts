import type { OpenAPIHono } from "@hono/zod-openapi";
import { ExecutionError } from "../../shared/errors.ts";
import { ResourceUsage, Timing } from "../../shared/execution.ts";
import type { Deps } from "../deps.ts";
import type { AppEnv } from "../http/context.ts";
import { version } from "../version.ts";

/**
 * Components that others refer to as "this or null". The generator writes a component as it first
 * meets it, so these are named before any route is.
 */
export function registerComponents(app: OpenAPIHono<AppEnv>): void {
  for (const [name, schema] of Object.entries({ ExecutionError, Timing, ResourceUsage })) {
    app.openAPIRegistry.register(name, schema);
  }
}

export function openApiRoute(app: OpenAPIHono<AppEnv>, { config }: Deps): void {
  app.openAPIRegistry.registerComponent("securitySchemes", "ApiKey", {
    type: "apiKey",
    in: "header",
    name: config.api_auth_header,
  });
  app.openAPIRegistry.registerComponent("securitySchemes", "Bearer", {
    type: "http",
    scheme: "bearer",
  });
  app.doc31("/openapi.json", {
    openapi: "3.1.0",
    info: {
      title: "Airlock",
      version,
      description: "Runs untrusted Python in single-use containers.",
    },
    security: config.api_auth_enabled ? [{ ApiKey: [] }, { Bearer: [] }] : [],
  });
}
