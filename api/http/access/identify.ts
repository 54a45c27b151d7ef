import type { Context, MiddlewareHandler } from "hono";
import { ManagedKey, Scope } from "../../../shared/wire/client/keys.ts";
import type { Deps } from "../../deps.ts";
import { type AppError, unauthorized } from "../../errors.ts";
import { findKey, listKeyHashes, recordKeyUse } from "../../store/keys.ts";
import type { AppEnv, Caller } from "../context.ts";
import { isHealthPath } from "../health-paths.ts";
import { acceptedKeys } from "./exposure.ts";
import { bearerToken, placeOf } from "./presented.ts";
import { holders, usedEveryMs } from "./strangers.ts";

const all = Scope.options;
const ofOperators: Scope[] = ["agents", "admin"];
const ofClients = all.filter((scope) => !ofOperators.includes(scope));

/** Who has a key; undefined for one that is unknown or void. */
export type FindCaller = (c: Context, key: string) => Promise<Caller | undefined>;

/** Finds the holders of keys of the configuration, and of managed keys. */
export function findCallers(deps: Deps): { find: FindCaller; relist: () => void } {
  const configured = configuredKeys(deps);
  const managed = managedKeys(deps);
  const find: FindCaller = async (c, key) => {
    const { hashes, callers } = await configured;
    const hash = await deps.sha256(key);
    const caller = callers[placeOf(hashes, hash)];
    if (caller || !ManagedKey.safeParse(key).success) return caller;
    return managed.find(hash, deps.clientAddress(c));
  };
  return { find, relist: managed.relist };
}

/** Finds out who sends a request: by a key, or anybody. */
export function identifyCaller(
  { config }: Pick<Deps, "config">,
  findCaller: FindCaller,
): MiddlewareHandler<AppEnv> {
  if (!config.api_auth_enabled) {
    const caller = anybody(config);
    return async (c, next) => {
      c.set("caller", caller);
      await next();
    };
  }
  return async (c, next) => {
    // A probe must not ask the database.
    const isProbe = isHealthPath(c.req.path);
    const given = isProbe ? [] : [c.req.header(config.api_auth_header), bearerToken(c)];
    let accepted: string | undefined;
    for (const key of new Set(given)) {
      const caller = key === undefined ? undefined : await findCaller(c, key);
      if (!caller) continue;
      if (accepted !== undefined) {
        throw unauthorized("The request has two different API keys: send one of them.");
      }
      accepted = key;
      c.set("caller", caller);
    }
    await next();
  };
}

/** Who sends a request to a service that asks for no keys. */
export function anybody(config: Pick<Deps["config"], "allow_unauthenticated_network_access">) {
  const isOpen = config.allow_unauthenticated_network_access;
  return callerOf(null, "anybody", isOpen ? ofClients : all);
}

/** The answer to a request that needs a key and has none that is accepted. */
export function noKey({ api_auth_header }: Deps["config"]): AppError {
  return unauthorized(
    `Send an API key in the header ${api_auth_header}, or as Authorization: Bearer.`,
  );
}

function callerOf(keyId: string | null, keyName: string, scopes: readonly Scope[]): Caller {
  return { keyId, keyName, tenant: "default", scopes, recheck: async () => {} };
}

/** Those of operators are last: a key in both lists is an operator's. */
async function configuredKeys({ config, sha256 }: Deps) {
  const hashes = await Promise.all(acceptedKeys(config).map(async (key) => sha256(key)));
  const callers = hashes.map((hash, at) => {
    const isClient = at < config.api_keys.length;
    const list = isClient ? "api_keys" : "operator_keys";
    return callerOf(hash.slice(0, 16), list, isClient ? ofClients : all);
  });
  return { hashes, callers };
}

function managedKeys(deps: Deps) {
  const { db, now, shareRead, waitUntil, config } = deps;
  const find = async (hash: string) => {
    const row = await shareRead(`key ${hash}`, () => findKey(db, hash, now()));
    if (!row) return undefined;
    const before = now() - usedEveryMs;
    if ((row.lastUsedAt ?? 0) < before) {
      // A full database must not lock the keys out.
      waitUntil(recordKeyUse(db, row.id, now(), before).catch(() => {}));
    }
    const { id, name, tenant, scopes, expiresAt, formerUntil } = row;
    const recheck = async (): Promise<void> => {
      if (!(await known.find(hash))) throw noKey(config);
    };
    const voidAt = Math.min(expiresAt ?? Infinity, formerUntil ?? Infinity);
    return { keyId: id, keyName: name, tenant, scopes, recheck, voidAt };
  };
  type Holder = Caller & { voidAt: number };
  const list = () => shareRead("keys", () => listKeyHashes(db, now()));
  const known = holders<Holder>(now, "API keys", { find, list }, ({ voidAt }) => voidAt);
  return known;
}
