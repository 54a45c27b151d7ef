import type { RequestOpts } from "@oazapfts/runtime";
import { AirlockError } from "./errors.ts";
import * as generated from "./generated.ts";
import { type CallOptions, type ConnectOptions, transport, type Transport } from "./transport.ts";
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

type Generated = typeof generated;

type Data<Answer> = Answer extends { data: infer Body } ? Body : undefined;

type Bound<Operation> = Operation extends (...args: infer Args) => Promise<infer Answer>
  ? Args extends [infer Parameters, unknown?]
    ? (parameters: Parameters, options?: CallOptions) => Promise<Data<Answer>>
    : (options?: CallOptions) => Promise<Data<Answer>>
  : never;

/** Every operation of the OpenAPI document by its name. They answer with the body and throw refusals. */
export type Api = {
  [
    Name in keyof Generated as Generated[Name] extends (...args: never[]) => unknown ? Name : never
  ]: Bound<Generated[Name]>;
};

/** Operations that answer only when the work is done, so they have no time limit. */
const unhurried = ["execute", "executeInSession", "restartSession", "buildJobType"];

type Operation = (...args: unknown[]) => Promise<{ data?: unknown }>;

export function bindApi({ send }: Pick<Transport, "send">): Api {
  const operations = Object.entries(generated).filter(
    (entry): entry is [keyof Api, never] => typeof entry[1] === "function",
  );
  return Object.fromEntries(
    operations.map(([name, operation]) => [name, bind(operation, unhurried.includes(name), send)]),
  ) as Api;
}

function bind(operation: Operation, isUnhurried: boolean, send: Transport["send"]): Operation {
  const bound = async (args: unknown[], options: CallOptions = {}) => {
    const limited = { ...(isUnhurried && { timeoutMs: 0 }), ...options };
    const request: RequestOpts = {
      baseUrl: "",
      fetch: (path, init) => send(path as string, init, limited),
    };
    return (await operation(...args, request)).data as { data?: unknown };
  };
  // A generated function takes its parameters, if there are any, and its options.
  return operation.length === 2
    ? (parameters, options) => bound([parameters], options as CallOptions)
    : (options) => bound([], options as CallOptions);
}

/**
 * The address without a slash at its end; that of a page of the console stands for the service's.
 *
 * @throws AirlockError
 */
export function checkUrl(text: string): string {
  const protocol = URL.canParse(text) ? new URL(text).protocol : "";
  if (protocol !== "http:" && protocol !== "https:") {
    throw new AirlockError(
      `"${text}" is not the address of a service: give http://host:port or https://host`,
    );
  }
  return text.replace(/(?<=[^/])\/console(\/.*)?$/, "").replace(/\/+$/, "");
}

/**
 * An empty variable must not become a request for the key's own tenant.
 *
 * @throws AirlockError
 */
export function checkTenant(tenant: string | undefined): void {
  if (tenant === undefined || /^(\*|[a-z0-9][a-z0-9-]{0,62})$/.test(tenant)) return;
  throw new AirlockError(
    `"${tenant}" is not the name of a tenant: it has a to z, 0 to 9 and -, or is * for all.`,
  );
}

/** @throws AirlockError that does not show the key. */
export function checkKey(key: string | null | undefined): void {
  // Programs in JavaScript may give null.
  if (key !== undefined && key !== null && !/^[\x21-\x7e]+$/.test(key)) {
    throw new AirlockError(
      "The API key is empty or has a character that no header can carry, such as a space, a line break or …: copy it again.",
    );
  }
}
