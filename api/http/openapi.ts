import { createRoute, type OpenAPIHono, z } from "@hono/zod-openapi";
import type { Config } from "../../shared/config/config.ts";
import { Problem } from "../../shared/wire/errors.ts";
import type { Deps } from "../deps.ts";
import type { ErrorCode } from "../errors.ts";
import { catalogue } from "../images/sql.ts";
import { jobTypeNames } from "../jobs/environment.ts";
import { version } from "../version.ts";
import type { AppEnv } from "./context.ts";
import { isRateLimited } from "./rate-limit.ts";
import { everywhere, headers, problems, registerHeaders, sharedProblems } from "./responses.ts";
import { accessTo } from "./scopes.ts";

const getOpenApi = createRoute({
  method: "get",
  path: "/openapi.json",
  operationId: "getOpenApi",
  summary: "This description, as OpenAPI 3.1",
  responses: {
    200: {
      description: "An OpenAPI 3.1 document, from which clients can be generated.",
      content: { "application/json": { schema: z.looseObject({ openapi: z.string() }) } },
    },
  },
});

/** Texts that a process keeps. Tenants with job types of their own have a text each. */
const mostTexts = 20;

/** The OpenAPI document of every endpoint for clients. */
export function openApiRoute(app: OpenAPIHono<AppEnv>, deps: Deps): void {
  const { config } = deps;
  registerHeaders(app);
  // A copy: a schema that was made before this library was loaded has no `openapi`.
  app.openAPIRegistry.register("Problem", Problem.clone());
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

  /** By the names of the job types in it. */
  const texts = new Map<string, string>();
  app.openapi(getOpenApi, async (c) => {
    // A stranger, who may read it with api_docs_public, is of no tenant.
    const { tenant = "" } = c.get("caller") ?? {};
    const jobTypes = jobTypeNames(await catalogue(deps), tenant);
    const key = jobTypes.join();
    const text =
      texts.get(key) ?? JSON.stringify(describeEverywhere(generate(app, config), config, jobTypes));
    if (texts.size >= mostTexts) texts.clear();
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
    tags: groups.map(({ name, description }) => ({ name, description })),
    security: api_auth_enabled ? [{ ApiKey: [] }, { Bearer: [] }] : [],
  });
}

type Document = ReturnType<OpenAPIHono["getOpenAPI31Document"]>;
type PathItem = NonNullable<Document["paths"]>[string];
type Operation = NonNullable<PathItem["get"]>;
type Answer = { $ref: string } | { description: string; headers?: object };

/**
 * Adds to every operation its group and the effects of the middleware: the correlation id, headers, the required key, and
 * the refusals that follow from its access, path and body.
 */
function describeEverywhere(
  document: Document,
  config: Config,
  jobTypes: readonly string[],
): Document {
  const paths = mapValues(document.paths ?? {}, (item: PathItem, path) =>
    mapValues(item as Record<string, Operation>, (operation, method) =>
      describeOperation(operation, method.toUpperCase(), path, config),
    ),
  );
  const components = {
    ...document.components,
    responses: sharedProblems(paths),
    schemas: describeConfigured(document.components?.schemas ?? {}, config, jobTypes),
  };
  return { ...document, paths, components };
}

function describeOperation(
  operation: Operation,
  method: string,
  path: string,
  config: Config,
): Operation {
  const access = accessTo(method, path, config);
  const isLocked = config.api_auth_enabled && access !== "public";
  const hasScope = access !== undefined && access !== "any" && access !== "public";
  const roles = hasScope ? [access] : [];
  const refusals: ErrorCode[] = ["internal", "unavailable"];
  if (isLocked) refusals.push("unauthorized");
  // A PUT makes what is not there. One that can still be 404 says so itself.
  if (path.includes("{") && method !== "PUT") refusals.push("not_found");
  if (operation.requestBody !== undefined) refusals.push("too_large", "unsupported_encoding");
  // `X-Airlock-Tenant` may name no tenant, or the request itself may be wrong.
  if (roles.length > 0) refusals.push("invalid_request");
  if (!config.api_auth_enabled || roles.length > 0) refusals.push("forbidden");
  // Unknown keys are limited too.
  if (isLocked || isRateLimited(path, config)) refusals.push("rate_limited");

  const answers: Record<string, Answer> = { ...problems(...refusals), ...operation.responses };
  const responses = mapValues(answers, (answer) =>
    "$ref" in answer
      ? answer
      : { ...answer, headers: { ...headers(...everywhere), ...answer.headers } },
  );
  const parameters = [
    ...(operation.parameters ?? []),
    { $ref: "#/components/parameters/X-Correlation-ID" },
    ...(roles.length > 0 ? [{ $ref: "#/components/parameters/X-Airlock-Tenant" }] : []),
  ];
  const security = isLocked ? [{ ApiKey: roles }, { Bearer: roles }] : [];
  const tags = groups.filter(({ paths }) => paths.test(path)).map(({ name }) => name);
  const secured = config.api_auth_enabled && { security };
  return { ...operation, tags, parameters, responses, ...secured };
}

function mapValues<From, To>(
  object: Record<string, From>,
  map: (value: From, key: string) => To,
): Record<string, To> {
  return Object.fromEntries(Object.entries(object).map(([key, value]) => [key, map(value, key)]));
}

/** The schemas of requests that make a job. */
const requests = ["ExecuteRequest", "AsyncSubmitRequest", "RerunRequest", "ForkRequest"];

/** What this service is configured to accept of a tenant, in the schemas of its document. */
function describeConfigured<Schema>(
  schemas: Record<string, Schema>,
  config: Config,
  jobTypes: readonly string[],
): Record<string, Schema> {
  const changed = requests.map((name) => {
    const schema = schemas[name] as Schema & { properties: Record<string, object> };
    const { timeout, job_type } = schema.properties;
    const properties = {
      ...schema.properties,
      timeout: { ...timeout, maximum: config.max_timeout },
      // A schema has no empty list.
      job_type: { ...job_type, ...(jobTypes.length > 0 && { enum: jobTypes }) },
    };
    return [name, { ...schema, properties }] as const;
  });
  return { ...schemas, ...Object.fromEntries(changed) };
}

/** Groups of endpoints by their paths, in an order for new users. */
export const groups: readonly { name: string; description: string; paths: RegExp }[] = [
  {
    name: "Execute",
    description: "Run Python code, and wait for it or not.",
    paths: /^\/execute(\/async)?$/,
  },
  {
    name: "Batches",
    description: "Many jobs in one request.",
    paths: /^\/(execute\/batch|batches)\b/,
  },
  { name: "Files", description: "Files to use in jobs.", paths: /^\/files\b/ },
  {
    name: "Sessions",
    description: "Sandboxes whose interpreter remembers from call to call.",
    paths: /^\/sessions\b/,
  },
  {
    name: "Jobs",
    description: "Follow a job, read its result, cancel it, run it again.",
    paths: /^\/jobs\/\{\w+\}(?!\/artifacts)/,
  },
  {
    name: "Artifacts",
    description: "Files that the code wrote to /output.",
    paths: /^\/jobs\/\{\w+\}\/artifacts\b/,
  },
  {
    name: "Executions",
    description: "The record of everything that ran.",
    paths: /^\/executions\b/,
  },
  {
    name: "Job types",
    description: "Named environments: image, packages, limits.",
    paths: /^\/job-types\b/,
  },
  { name: "Dead letters", description: "Asynchronous jobs that failed.", paths: /^\/dlq\b/ },
  {
    name: "Webhooks",
    description: "Calls to your own service when a job has ended.",
    paths: /^\/webhooks\b/,
  },
  {
    name: "Health",
    description: "State of the service and its agents.",
    paths: /^\/(health|metrics|pool|usage)\b/,
  },
  {
    name: "Hosts and agents",
    description: "For operators: who may run jobs.",
    paths: /^\/(hosts|agents)\b/,
  },
  {
    name: "Keys and tenants",
    description: "For operators: who may do what, how much, and who did it.",
    paths: /^\/(keys?|tenants|audit)\b/,
  },
  {
    name: "Description",
    description: "This page, and the OpenAPI document behind it.",
    paths: /^\/(docs|openapi\.json)$/,
  },
];

const introduction = `Runs untrusted code, Python or another language, in single-use containers.

The code finds its \`input_data\` in \`/input/data.json\`. What it prints comes back as \`stdout\` and
\`stderr\`; JSON that it writes to \`/output/result.json\` comes back as \`output\`; every other file in
\`/output\` can be downloaded as an artifact. The code has no network, unless its job type has one.

**Try it:** open \`POST /execute\` below, choose an example, and press *Execute*.

- Code that fails is not an HTTP error: the answer is 200, and \`error\` says what went wrong.
- A refused request is answered with problem details (RFC 9457); \`detail\` says what to do.
- Every answer has \`X-Correlation-ID\`, which identifies the request in the service's log. Answers to
  requests that the rate limit counts have \`RateLimit-*\`: how many are left.
`;
