import { bindApi, type Api } from "./api.ts";
import { checkKey, checkTenant, checkUrl } from "./transport/check-options.ts";
import { AirlockError } from "./transport/errors.ts";
import { transport, type ConnectOptions } from "./transport/transport.ts";
import { verbs, type Verbs } from "./verbs.ts";

export interface Airlock extends Verbs {
  /** Every operation of the service by its name in the OpenAPI document. */
  readonly api: Api;
}

/** A client of one service. It keeps no connection: there is nothing to close. */
export function connect(options: string | ConnectOptions = {}): Airlock {
  const given = typeof options === "string" ? { url: options } : options;
  const { url, key } = given.url === undefined ? ofSurroundings(given.key) : { ...given };
  checkKey(key);
  checkTenant(given.tenant);
  const service = transport({ ...given, key: key ?? undefined, url: checkUrl(String(url)) });
  return { ...verbs(service), api: bindApi(service) };
}

type Surroundings = {
  location?: { origin: string };
  process?: { env?: Record<string, string | undefined> };
};

/** The key of the environment is sent only to the address of the environment. */
function ofSurroundings(key: string | undefined): Pick<ConnectOptions, "url" | "key"> {
  const { location, process } = globalThis as Surroundings;
  // Bundlers put a `process` into pages, too.
  if (location) return { url: location.origin, key };
  if (!process?.env) throw new AirlockError("Say where the service is: connect({ url }).");
  const { AIRLOCK_URL: url, AIRLOCK_KEY: ownKey } = process.env;
  return { url: url || "http://127.0.0.1:8080", key: key ?? (ownKey || undefined) };
}
