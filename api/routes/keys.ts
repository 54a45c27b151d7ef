import { createRoute, z, type OpenAPIHono } from "@hono/zod-openapi";
import type { Context } from "hono";
import {
  ApiKey,
  ApiKeyList,
  KeyRequest,
  KeyRotation,
  NewApiKey,
  OwnKey,
} from "../../shared/wire/client/keys.ts";
import { TenantName } from "../../shared/wire/tenant.ts";
import type { Deps } from "../deps.ts";
import { jsonBody, optionalJsonBody } from "../http/body/json.ts";
import type { AppEnv } from "../http/context.ts";
import { actorOf } from "../http/origin.ts";
import { createKey, type Maker, revokeKey, rotateKey, showKeys } from "../keys/keys.ts";
import { apiKey, key, ownKey } from "../openapi/examples/keys.ts";
import { idParam } from "../openapi/parameters.ts";
import { body, json, problems } from "../openapi/responses/bodies.ts";
import { problem } from "../openapi/responses/problems.ts";

const keyParam = idParam("The `id` of a key, from `GET /keys`.", apiKey.id);
const tags = ["Keys and tenants"];

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
    tags,
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
    tags,
    summary: "Make a key",
    description: "The answer shows the key, which is shown nowhere else.",
    middleware: jsonBody(max_request_bytes),
    request: body(KeyRequest, {
      example: { name: "ci", tenant: "search", scopes: ["run", "read"], expires_in_s: 7_776_000 },
    }),
    responses: {
      201: json(NewApiKey, "The new key.", { example: { ...apiKey, last_used_at: null, key } }),
      ...problems("invalid_request", "too_large"),
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
    tags,
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
      ...problems("invalid_request"),
    },
  });
  app.openapi(list, async (c) =>
    c.json({ keys: await showKeys(deps, c.req.valid("query").tenant) }, 200),
  );

  const rotate = createRoute({
    method: "post",
    path: "/keys/{id}/rotate",
    operationId: "rotateKey",
    tags,
    summary: "Replace a key",
    description:
      "The answer shows the new key. The old one holds for `old_valid_s` more seconds. `id`, scopes and limits stay.",
    middleware: optionalJsonBody(max_request_bytes),
    request: { params: keyParam, ...body(KeyRotation, { example: { old_valid_s: 3600 } }, false) },
    responses: {
      200: json(NewApiKey, "The key after the call.", {
        example: { ...apiKey, old_valid_until: "2026-11-22T10:45:00.000Z", key },
      }),
      ...problems("invalid_request", "not_found", "too_large"),
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
    tags,
    summary: "Void a key",
    description:
      "New requests with it are refused within a second, streams and waiting requests end within 5 s. Its jobs go on. A repeat changes nothing.",
    request: { params: keyParam },
    responses: {
      200: json(ApiKey, "The key after the call.", {
        example: { ...apiKey, revoked_at: "2026-11-22T10:00:00.000Z" },
      }),
      ...problems("not_found"),
    },
  });
  app.openapi(revoke, async (c) =>
    c.json(await revokeKey(deps, actorOf(deps, c), c.req.valid("param").id), 200),
  );
}
