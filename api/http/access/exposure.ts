import { ConfigError, type Config } from "../../../shared/config/config.ts";
import type { Deps } from "../../deps.ts";
import { hasKey } from "../../store/keys.ts";

/** Whether a host's name or address is always this machine's own. */
function isLoopback(host: string): boolean {
  return /^(localhost|127(\.\d{1,3}){3}|::1|\[::1\])$/i.test(host);
}

/** The keys of clients; those of operators are among them. */
export function acceptedKeys({ api_keys, operator_keys }: Config): string[] {
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
