import type { Context, MiddlewareHandler } from "hono";
import { type Config, ConfigError } from "../../shared/config/config.ts";
import { AgentToken, ManagedKey, Scope } from "../../shared/wire/access.ts";
import { protocolHeader, protocolMismatch, protocolVersion } from "../../shared/wire/leases.ts";
import { findToken, listTokenHashes, recordTokenUse, replaceToken } from "../agents/agents.ts";
import type { Deps } from "../deps.ts";
import { AppError, unauthorized } from "../errors.ts";
import { findKey, hasKey, listKeyHashes, recordKeyUse } from "../tenants/sql.ts";
import { type AppEnv, type Caller, isHealthPath } from "./context.ts";

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
    const row = await shareRead(`key ${hash}`, () => findKey(db, { hash, now: now() }));
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

/** The tokens that agents joined with. */
export function joinedTokens(deps: Deps): Holders<{ id: string }> {
  const { db, now, shareRead } = deps;
  return holders(now, "agent tokens", {
    find: (hash) => lookUp(deps, hash),
    list: () => shareRead("tokens", () => listTokenHashes(db)),
  });
}

/** Requires an agent's own token or one of `agent_tokens`; an API key never opens the agents' endpoints. */
export function requireAgentToken(
  { config, sha256, clientAddress }: Deps,
  joined: Holders<{ id: string }>,
): MiddlewareHandler<AppEnv> {
  const configured = Promise.all(config.agent_tokens.map(async (token) => sha256(token)));
  return async (c, next) => {
    const token = bearerToken(c) ?? "";
    const hash = await sha256(token);
    const holder =
      placeOf(await configured, hash) >= 0
        ? hash
        : AgentToken.safeParse(token).success && (await joined.find(hash, clientAddress(c)))?.id;
    if (typeof holder !== "string") {
      throw unauthorized(
        "The agent's token is unknown or revoked. Send, as Authorization: Bearer, the one that it joined with, or one of the configured agent_tokens.",
      );
    }
    c.set("agentTokenHash", holder);
    await next();
  };
}

async function lookUp({ db, now }: Deps, hash: string): Promise<{ id: string } | undefined> {
  const row = await findToken(db, { hash });
  if (!row) return undefined;
  if (row.nextHash === hash) await replaceToken(db, hash, now());
  else if ((row.lastUsedAt ?? 0) < now() - usedEveryMs) await recordTokenUse(db, row.id, now());
  return { id: row.id };
}

/** Refuses an agent with another version of the protocol before its request is read. */
export function checkProtocol(): MiddlewareHandler<AppEnv> {
  return async (c, next) => {
    c.header(protocolHeader, protocolVersion);
    const mismatch = protocolMismatch(c.req.header(protocolHeader), "agent");
    if (mismatch !== undefined) {
      throw new AppError("invalid_request", mismatch, {}, { [protocolHeader]: protocolVersion });
    }
    await next();
  };
}

/** The key or token in the header Authorization. */
function bearerToken(c: Context): string | undefined {
  return /^Bearer +(\S+)$/i.exec(c.req.header("Authorization") ?? "")?.[1];
}

/**
 * The last place of a hash in a list; -1 if it is not there. Compares in constant time, so that the time
 * reveals nothing about a key.
 */
function placeOf(accepted: readonly string[], given: string): number {
  let place = -1;
  for (const [at, hash] of accepted.entries()) {
    let difference = 0;
    for (let i = 0; i < hash.length; i++) difference |= hash.charCodeAt(i) ^ given.charCodeAt(i);
    if (difference === 0) place = at;
  }
  return place;
}

/** Resolution of the recorded time of a key's or token's last use. */
const usedEveryMs = 60_000;

/** A holder that was found is cached for this long, so that a busy client's requests need no query each. */
const believedMs = 1000;
const believedMax = 10_000;

/** Looks up holders. */
interface Holders<H> {
  find: (hash: string, client?: string) => Promise<H | undefined>;
  /** Call it when a key or token was made: its holder may use it at once. */
  relist: () => void;
}

interface Register<H> {
  find: (hash: string) => Promise<H | undefined>;
  /** The hashes of all valid keys or tokens. */
  list: () => Promise<string[]>;
}

/**
 * Looks up the holders of keys or tokens by their hash. One that became void is refused within a second.
 * Each client network may present a limited number of unknown ones. Above that, only those in the list of all
 * are looked up, which is read once a second: so strangers cost few reads, and lock out nobody else at their
 * address. A look-up without an address is of a key that was known before, and is not limited.
 *
 * @param voidAt When a holder's key expires.
 */
function holders<H extends object>(
  now: () => number,
  what: string,
  { find, list }: Register<H>,
  voidAt: (holder: H) => number = () => Infinity,
): Holders<H> {
  const believed = new Map<string, { readonly holder: H; readonly at: number }>();
  const strangers = createStrangerLimit(now, what);
  let listed = { at: -Infinity, hashes: new Set<string>() };
  const isListed = async (hash: string): Promise<boolean> => {
    const at = now();
    if (!isFresh(listed.at, Infinity, at)) listed = { at, hashes: new Set(await list()) };
    return listed.hashes.has(hash);
  };
  const look: Holders<H>["find"] = async (hash, client) => {
    const known = believed.get(hash);
    if (known && isFresh(known.at, voidAt(known.holder), now())) return known.holder;
    const network = client === undefined ? undefined : clientNetwork(client);
    const isMany = !known && network !== undefined && strangers.areMany(network);
    if (isMany && !(await isListed(hash))) throw strangers.refusal(network);
    const holder = await find(hash);
    if (!holder) {
      believed.delete(hash);
      if (network !== undefined) strangers.count(network);
      return undefined;
    }
    if (believed.size >= believedMax) believed.clear();
    believed.set(hash, { holder, at: now() });
    return holder;
  };
  return { find: look, relist: () => (listed.at = -Infinity) };
}

/** False for a time in the future: the clock was set back. */
function isFresh(at: number, voidAt: number, now: number): boolean {
  return at <= now && now < at + believedMs && now < voidAt;
}

const unknownPerMinute = 30;
const minuteMs = 60_000;

/** Counts the unknown keys or tokens of each client network, in this process. */
function createStrangerLimit(now: () => number, what: string) {
  const windows = new Map<string, { count: number; readonly endsAt: number }>();
  return {
    areMany(client: string): boolean {
      const window = windows.get(client);
      return window !== undefined && window.endsAt > now() && window.count >= unknownPerMinute;
    },
    /** 429 for a client that has presented too many. */
    refusal(client: string): AppError {
      const leftMs = windows.get(client)!.endsAt - now();
      return new AppError(
        "rate_limited",
        `More than ${unknownPerMinute} unknown ${what} in a minute; wait for the seconds that Retry-After says.`,
        {},
        { "Retry-After": String(Math.max(1, Math.ceil(leftMs / 1000))) },
      );
    },
    count(client: string): void {
      const window = windows.get(client);
      if (window && window.endsAt > now()) window.count += 1;
      else {
        if (windows.size >= believedMax) windows.clear();
        windows.set(client, { count: 1, endsAt: now() + minuteMs });
      }
    },
  };
}

/**
 * The name under which a client without a key is counted: its IPv4 address, or the /64 of its IPv6
 * address, since a host usually owns a whole /64. Text that is no IPv6 address is returned unchanged.
 */
export function clientNetwork(address: string): string {
  const [withoutZone = ""] = address.split("%");
  if (!withoutZone.includes(":") || !URL.canParse(`http://[${withoutZone}]`)) return address;
  const { hostname } = new URL(`http://[${withoutZone}]`);
  const [head = "", tail] = hostname.slice(1, -1).split("::");
  const before = groups(head);
  const after = groups(tail ?? "");
  const zeros = Array<string>(tail === undefined ? 0 : 8 - before.length - after.length).fill("0");
  const all = [...before, ...zeros, ...after];
  const isMapped = all.slice(0, 6).join() === "0,0,0,0,0,ffff";
  if (isMapped) return all.slice(6).flatMap(bytes).join(".");
  return `${all.slice(0, 4).join(":")}::/64`;
}

function groups(text: string): string[] {
  return text === "" ? [] : text.split(":");
}

function bytes(group: string): number[] {
  const value = Number.parseInt(group, 16);
  return [value >> 8, value & 0xff];
}

/** Whether a host's name or address is always this machine's own. */
function isLoopback(host: string): boolean {
  return /^(localhost|127(\.\d{1,3}){3}|::1|\[::1\])$/i.test(host);
}

/** The keys of clients; those of operators are among them. */
function acceptedKeys({ api_keys, operator_keys }: Config): string[] {
  return [...api_keys, ...operator_keys];
}

/**
 * Whether a request without a key may be addressed to this host name (as in `URL.hostname`). This refuses a page whose
 * own name points at this machine's address (DNS rebinding).
 */
export function answersFor(
  name: string,
  { host, allowed_hosts }: Pick<Config, "host" | "allowed_hosts">,
): boolean {
  const isOpenToAnyName = !isLoopback(host) && allowed_hosts.length === 0;
  // Browsers resolve every name under .localhost to this machine.
  const isOwn = isLoopback(name) || name.endsWith(".localhost");
  return isOpenToAnyName || isOwn || allowed_hosts.includes(name);
}

/**
 * Refuses a configuration that opens the service to a network without keys: docs/contract.md 2.19.
 * Returns a warning if that is explicitly allowed, or if keys are set but not required.
 *
 * @throws ConfigError that names the configuration keys to set.
 */
export function checkExposure(config: Config): string | undefined {
  if (config.api_auth_enabled) {
    const { api_keys, compat_key } = config;
    // Nor may it be an operator's: whoever reaches the port acts with it.
    if (compat_key !== undefined && !api_keys.includes(compat_key)) {
      throw new ConfigError("compat_key is not one of api_keys: name a key of clients there");
    }
    return undefined;
  }
  const unused =
    acceptedKeys(config).length > 0
      ? "api_keys are set, but no request needs one: set api_auth_enabled = true"
      : undefined;
  if (isLoopback(config.host)) return unused;
  if (!config.allow_unauthenticated_network_access) {
    throw new ConfigError(
      `host = "${config.host}" is not a loopback address: set api_auth_enabled and api_keys, or allow_unauthenticated_network_access = true to let anyone who can reach the port run code`,
    );
  }
  const open = `anyone who can reach ${config.host}:${config.port} can run code: authentication is disabled`;
  return unused === undefined ? open : `${open}; ${unused}`;
}

/** @throws ConfigError if keys are required, and neither the configuration nor the database has one. */
export async function requireSomeKey({
  config,
  db,
  now,
}: Pick<Deps, "config" | "db" | "now">): Promise<void> {
  if (!config.api_auth_enabled || acceptedKeys(config).length > 0) return;
  if (await hasKey(db, now())) return;
  throw new ConfigError(
    "api_auth_enabled is true, but api_keys is empty: add a key, or make one with npm run keys -- create",
  );
}
