import type { OpenAPIHono } from "@hono/zod-openapi";
import type { Config } from "../../shared/config/config.ts";
import type { ErrorCode } from "../errors.ts";
import { accessTo } from "../http/access/scopes.ts";
import { isRateLimited } from "../http/access/rate-limit.ts";
import { describeConfigured } from "./configured.ts";
import { sharedProblems } from "./responses/problems.ts";
import { everywhere, headers } from "./responses/headers.ts";
import { problems } from "./responses/bodies.ts";

type Document = ReturnType<OpenAPIHono["getOpenAPI31Document"]>;
type PathItem = NonNullable<Document["paths"]>[string];
type Operation = NonNullable<PathItem["get"]>;
type Answer = { $ref: string } | { description: string; headers?: object };

/**
 * Adds the effects of the middleware to every operation: the correlation id, headers, the required
 * key, and the refusals that any endpoint may answer with.
 */
export function describeEverywhere(
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
  if (operation.requestBody !== undefined) refusals.push("unsupported_encoding");
  // A header that names no tenant.
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
  return { ...operation, parameters, responses, ...(config.api_auth_enabled && { security }) };
}

function mapValues<From, To>(
  object: Record<string, From>,
  map: (value: From, key: string) => To,
): Record<string, To> {
  return Object.fromEntries(Object.entries(object).map(([key, value]) => [key, map(value, key)]));
}
