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
export interface Keys {
  /** Makes a key. Its `key` is in this answer only: the service keeps a hash. */
  readonly create: (key: KeyRequest, options?: CallOptions) => Promise<NewApiKey>;
  /** All of them, or those of one tenant; also those that are void, without the keys themselves. */
  readonly list: (filters?: { tenant?: string }, options?: CallOptions) => Promise<ApiKey[]>;
  /** Makes a new key in the place of one, whose id, tenant and limits stay. The old one holds for `old_valid_s` too. */
  readonly rotate: (
    id: string,
    rotation?: { old_valid_s?: number },
    options?: CallOptions,
  ) => Promise<NewApiKey>;
  /** Makes a key void for good. */
  readonly revoke: (id: string, options?: CallOptions) => Promise<ApiKey>;
}

/** Who owns records, and what each may use. Needs a key with the scope `admin`. */
export interface Tenants {
  readonly list: (options?: CallOptions) => Promise<Tenant[]>;
  readonly get: (name: string, options?: CallOptions) => Promise<Tenant>;
  /** Replaces all limits of a tenant: what is not named has none. Makes the tenant if it is new. */
  readonly setLimits: (
    name: string,
    limits: TenantLimits,
    options?: CallOptions,
  ) => Promise<Tenant>;
}

/** What was changed and by whom, the newest first. Needs a key with the scope `admin`. */
export type Audit = (
  filters?: { action?: AuditAction; tenant?: string; limit?: number },
  options?: CallOptions,
) => AsyncGenerator<AuditEntry, void>;

function keys(ask: Ask): Keys {
  return {
    create: (body, options) => ask("/keys", { method: "POST", body }, options),
    list: async (filters = {}, options) =>
      (await ask<{ keys: ApiKey[] }>("/keys", { query: { ...filters } }, options)).keys,
    rotate: async (id, body = {}, options) =>
      ask(`${pathOf("keys", id)}/rotate`, { method: "POST", body }, options),
    revoke: async (id, options) => ask(`${pathOf("keys", id)}/revoke`, { method: "POST" }, options),
  };
}

function tenants(ask: Ask): Tenants {
  return {
    list: async (options) => (await ask<{ tenants: Tenant[] }>("/tenants", {}, options)).tenants,
    get: async (name, options) => ask(pathOf("tenants", name), {}, options),
    setLimits: async (name, body, options) =>
      ask(pathOf("tenants", name), { method: "PUT", body }, options),
  };
}

function audit(ask: Ask): Audit {
  return (filters = {}, options) =>
    pages<AuditEntry>(ask, "/audit", { ...filters }, ({ id }) => id, options);
}
