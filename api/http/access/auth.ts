import type { Context, MiddlewareHandler } from "hono";
import type { Config } from "../../../shared/config/config.ts";
import { agentTokens } from "../../agents/tokens.ts";
import type { Deps } from "../../deps.ts";
import { AppError, unauthorized } from "../../errors.ts";
import type { AppEnv } from "../context.ts";
import { isHealthPath } from "../health-paths.ts";
import { acceptedKeys } from "./exposure.ts";

/** Where MCP clients look for an OAuth server. There is none: the answer is 404, because they misread a 401. */
const oauthPaths = /^\/(\.well-known\/(oauth-|openid-configuration).*|register)$/;
const docsPaths = /^\/(docs(\/.*)?|openapi\.json|llms\.txt)$/;

/** Stores the hash of the API key that a request carries, for the handlers. */
export function identifyKey({ config, sha256 }: Deps): MiddlewareHandler<AppEnv> {
  const accepted = Promise.all(acceptedKeys(config).map(async (key) => sha256(key)));
  return async (c, next) => {
    const given = config.api_auth_enabled
      ? [c.req.header(config.api_auth_header), bearerToken(c)]
      : [];
    for (const key of given) {
      const hash = key === undefined ? undefined : await sha256(key);
      if (hash === undefined || !includesHash(await accepted, hash)) continue;
      if ((c.get("apiKeyHash") ?? hash) !== hash) {
        throw unauthorized("The request has two different API keys: send one of them.");
      }
      c.set("apiKeyHash", hash);
    }
    await next();
  };
}

/** Whether a path needs a key. Only health paths and public paths need none. */
export function needsKey(path: string, config: Config): boolean {
  const isPublicPage = config.api_docs_public && docsPaths.test(path);
  const open = isHealthPath(path) || isPublicPage || oauthPaths.test(path);
  return config.api_auth_enabled && !open;
}

/** Requires one of `api_keys` if `api_auth_enabled` is set: docs/contract.md 7.2. */
export function requireApiKey({ config }: Deps): MiddlewareHandler<AppEnv> {
  return async (c, next) => {
    if (needsKey(c.req.path, config) && c.get("apiKeyHash") === undefined) {
      throw unauthorized(
        `Send one of the configured API keys in the header ${config.api_auth_header}, or as Authorization: Bearer.`,
      );
    }
    await next();
  };
}

/**
 * Requires one of `operator_keys`; without keys, a service that only this machine reaches.
 * Only operators manage agents: an agent sees the code and the input of the jobs that it gets.
 */
export function requireOperator({ config, sha256 }: Deps): MiddlewareHandler<AppEnv> {
  const operators = Promise.all(config.operator_keys.map(async (key) => sha256(key)));
  return async (c, next) => {
    const isOperator = config.api_auth_enabled
      ? includesHash(await operators, c.get("apiKeyHash") ?? "")
      : !config.allow_unauthenticated_network_access;
    if (!isOperator) {
      throw new AppError(
        "forbidden",
        "Only operators manage agents: use a key that operator_keys in the API's configuration lists.",
      );
    }
    await next();
  };
}

/** Requires an agent's own token or one of `agent_tokens`; an API key never opens the agents' endpoints. */
export function requireAgentToken(deps: Deps): MiddlewareHandler<AppEnv> {
  const { config, sha256, clientAddress } = deps;
  const configured = Promise.all(config.agent_tokens.map(async (token) => sha256(token)));
  const joined = agentTokens(deps);
  return async (c, next) => {
    const token = bearerToken(c) ?? "";
    const hash = await sha256(token);
    const holder = includesHash(await configured, hash)
      ? hash
      : await joined(token, hash, clientAddress(c));
    if (holder === undefined) {
      throw unauthorized(
        "The agent's token is unknown or revoked. Send, as Authorization: Bearer, the one that it joined with, or one of the configured agent_tokens.",
      );
    }
    c.set("agentTokenHash", holder);
    await next();
  };
}

function bearerToken(c: Context): string | undefined {
  return /^Bearer +(\S+)$/i.exec(c.req.header("Authorization") ?? "")?.[1];
}

/** Compares hashes in constant time, so that the time reveals nothing about a key. */
function includesHash(accepted: string[], given: string): boolean {
  let found = 0;
  for (const hash of accepted) {
    let difference = 0;
    for (let i = 0; i < hash.length; i++) difference |= hash.charCodeAt(i) ^ given.charCodeAt(i);
    found |= Number(difference === 0);
  }
  return found === 1;
}
