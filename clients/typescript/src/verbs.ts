import { artifacts, type Artifacts, files, type Files } from "./files.ts";
import type {
  ApiKey,
  AuditAction,
  AuditEntry,
  KeyRequest,
  NewApiKey,
  Tenant,
  TenantLimits,
  Usage,
} from "./generated.ts";
import {
  batches,
  type Batches,
  deadLetters,
  type DeadLetters,
  jobs,
  type Jobs,
  stream,
  type Stream,
} from "./jobs.ts";
import { sessions, type Sessions } from "./sessions.ts";
import { type Ask, asking, type CallOptions, pages, pathOf, type Transport } from "./transport.ts";

export interface Verbs extends Jobs {
  /** Address of the service, without a slash at its end. */
  readonly url: string;
  readonly stream: Stream;
  readonly files: Files;
  readonly artifacts: Artifacts;
  readonly sessions: Sessions;
  readonly batches: Batches;
  readonly deadLetters: DeadLetters;
  readonly keys: Keys;
  readonly tenants: Tenants;
  /** What the tenant of the key uses, and what it may use. */
  readonly usage: (options?: CallOptions) => Promise<Usage>;
  readonly audit: Audit;
  /** Sends any request. Resolves when the headers of the answer are there; the caller reads the body. */
  readonly request: (path: string, init?: RequestInit, options?: CallOptions) => Promise<Response>;
}

/** The client without the generated operations: it is small, and needs no set-up. */
export function verbs(service: Transport): Verbs {
  const ask = asking(service);
  const events = stream(service);
  const { runToEnd, ...ofJobs } = jobs(ask, events, service);
  return {
    url: service.url,
    ...ofJobs,
    stream: events,
    files: files(ask, service),
    artifacts: artifacts(ask, service),
    sessions: sessions(ask, service, runToEnd),
    batches: batches(ask),
    deadLetters: deadLetters(ask),
    keys: keys(ask),
    tenants: tenants(ask),
    usage: (options) => ask("/usage", {}, options),
    audit: audit(ask),
    request: service.open,
  };
}

/** API keys. Needs a key with the scope `admin`. */
export type Keys = Readonly<ReturnType<typeof keys>>;

function keys(ask: Ask) {
  return {
    /** Makes a key. Its `key` is in this answer only: the service keeps a hash. */
    create: (key: KeyRequest, options?: CallOptions): Promise<NewApiKey> =>
      ask("/keys", { method: "POST", body: key }, options),
    /** All of them, or those of one tenant; also those that are void, without the keys themselves. */
    list: async (filters: { tenant?: string } = {}, options?: CallOptions): Promise<ApiKey[]> =>
      (await ask<{ keys: ApiKey[] }>("/keys", { query: { ...filters } }, options)).keys,
    /** Makes a new key in the place of one, whose id, tenant and limits stay. The old one holds for `old_valid_s` too. */
    rotate: async (
      id: string,
      rotation: { old_valid_s?: number } = {},
      options?: CallOptions,
    ): Promise<NewApiKey> =>
      ask(`${pathOf("keys", id)}/rotate`, { method: "POST", body: rotation }, options),
    /** Makes a key void for good. */
    revoke: async (id: string, options?: CallOptions): Promise<ApiKey> =>
      ask(`${pathOf("keys", id)}/revoke`, { method: "POST" }, options),
  };
}

/** Who owns records, and what each may use. Needs a key with the scope `admin`. */
export type Tenants = Readonly<ReturnType<typeof tenants>>;

function tenants(ask: Ask) {
  return {
    list: async (options?: CallOptions): Promise<Tenant[]> =>
      (await ask<{ tenants: Tenant[] }>("/tenants", {}, options)).tenants,
    get: async (name: string, options?: CallOptions): Promise<Tenant> =>
      ask(pathOf("tenants", name), {}, options),
    /** Replaces all limits of a tenant: what is not named has none. Makes the tenant if it is new. */
    setLimits: async (name: string, limits: TenantLimits, options?: CallOptions): Promise<Tenant> =>
      ask(pathOf("tenants", name), { method: "PUT", body: limits }, options),
  };
}

/** What was changed and by whom, the newest first. Needs a key with the scope `admin`. */
export type Audit = ReturnType<typeof audit>;

const audit =
  (ask: Ask) =>
  (
    filters: { action?: AuditAction; tenant?: string; limit?: number } = {},
    options?: CallOptions,
  ): AsyncGenerator<AuditEntry, void> =>
    pages(ask, "/audit", { ...filters }, ({ id }) => id, options);
