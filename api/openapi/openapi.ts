import type { OpenAPIHono } from "@hono/zod-openapi";
import { createRoute, z } from "@hono/zod-openapi";
import type { Config } from "../../shared/config/config.ts";
import { Problem } from "../../shared/wire/errors.ts";
import type { Deps } from "../deps.ts";
import { jobTypeNames } from "../domain/job-types.ts";
import type { AppEnv } from "../http/context.ts";
import { version } from "../version.ts";
import { describeEverywhere } from "./everywhere.ts";
import { introduction, tags } from "./text.ts";
import { registerHeaders } from "./responses/headers.ts";

const getOpenApi = createRoute({
  method: "get",
  path: "/openapi.json",
  operationId: "getOpenApi",
  tags: ["Description"],
  summary: "This description, as OpenAPI 3.1",
  responses: {
    200: {
      description: "An OpenAPI 3.1 document, from which clients can be generated.",
      content: { "application/json": { schema: z.looseObject({ openapi: z.string() }) } },
    },
  },
});

/** The OpenAPI document of every endpoint for clients. */
export function openApiRoute(app: OpenAPIHono<AppEnv>, { config }: Deps): void {
  registerHeaders(app);
  app.openAPIRegistry.register("Problem", Problem);
  app.openAPIRegistry.registerComponent("parameters", "X-Correlation-ID", {
    name: "X-Correlation-ID",
    in: "header",
    description:
      "Identifies the request in logs and answers. If it is missing or not a plain token, the request gets a new id.",
    schema: { type: "string" },
  });
  app.openAPIRegistry.registerComponent("parameters", "X-Airlock-Tenant", {
    name: "X-Airlock-Tenant",
    in: "header",
    description:
      "The tenant that the request is about, with the scope `admin`; default: the key's own. `*` reads records and lists of all tenants.",
    schema: { type: "string", pattern: "^(\\*|[a-z0-9][a-z0-9-]{0,62})$" },
  });
  if (config.api_auth_enabled) registerKeys(app, config);

  /** By the names of the job types in it: the configuration bounds how many there are. */
  const texts = new Map<string, string>();
  app.openapi(getOpenApi, (c) => {
    // A stranger, who may read it with api_docs_public, is of no tenant.
    const jobTypes = jobTypeNames(config, c.get("caller")?.tenant ?? "");
    const key = jobTypes.join();
    const text =
      texts.get(key) ?? JSON.stringify(describeEverywhere(generate(app, config), config, jobTypes));
    texts.set(key, text);
    return c.body(text, 200, { "Content-Type": "application/json" }) as never;
  });
}

function registerKeys(app: OpenAPIHono<AppEnv>, { api_auth_header }: Config): void {
  app.openAPIRegistry.registerComponent("securitySchemes", "ApiKey", {
    type: "apiKey",
    in: "header",
    name: api_auth_header,
    description:
      "A key of the configuration or one that an operator made. The role that an endpoint names is the scope that the key needs.",
  });
  app.openAPIRegistry.registerComponent("securitySchemes", "Bearer", {
    type: "http",
    scheme: "bearer",
    description: "The same key as `Authorization: Bearer`.",
  });
}

function generate(app: OpenAPIHono<AppEnv>, { api_auth_enabled }: Config) {
  return app.getOpenAPI31Document({
    openapi: "3.1.0",
    info: { title: "Airlock", version, description: introduction },
    tags,
    security: api_auth_enabled ? [{ ApiKey: [] }, { Bearer: [] }] : [],
  });
}
