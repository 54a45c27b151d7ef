import { ConfigError, type Config } from "../../shared/config/config.ts";

const loopback = /^(localhost|127(\.\d{1,3}){3}|::1|\[::1\])$/i;

/**
 * Refuses to open the service to a network without keys: docs/contract.md 2.19.
 * Returns a warning where that was explicitly allowed, or where keys are set that nobody is asked for.
 *
 * @throws ConfigError naming the keys that would make it safe.
 */
export function checkExposure(config: Config): string | undefined {
  if (config.api_auth_enabled && config.api_keys.length === 0) {
    throw new ConfigError("api_auth_enabled is true, but api_keys is empty: add at least one key");
  }
  if (config.api_auth_enabled) return undefined;
  const unused =
    config.api_keys.length > 0
      ? "api_keys are set, but no request needs one: set api_auth_enabled = true"
      : undefined;
  if (loopback.test(config.host)) return unused;
  if (!config.allow_unauthenticated_network_access) {
    throw new ConfigError(
      `host = "${config.host}" is not a loopback address: set api_auth_enabled and api_keys, or allow_unauthenticated_network_access = true to let anyone who can reach the port run code`,
    );
  }
  const open = `anyone who can reach ${config.host}:${config.port} can run code: authentication is disabled`;
  return unused === undefined ? open : `${open}; ${unused}`;
}
