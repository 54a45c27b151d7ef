import type { Logger } from "@logtape/logtape";
import type { Context } from "hono";
import { createMiddleware } from "hono/factory";
import type { Scope } from "../../shared/wire/access.ts";
import type { JobEvent } from "../../shared/wire/executions.ts";
import type { ClientDeps, RouteDeps } from "../deps.ts";
import type { Actor } from "../tenants/sql.ts";

/** The key, tenant and scopes of one request. */
export interface Caller {
  /** Stands for the key in records and limits; null if keys are not required. */
  keyId: string | null;
  /** What the audit log shows. */
  keyName: string;
  tenant: string;
  scopes: readonly Scope[];
  /** @throws AppError 401 if the key has become void: for requests that wait, also for their body, and streams. */
  recheck: () => Promise<void>;
}

/** The bytes of a request's body, or of its answer, that are in memory. */
export interface HeldBytes {
  /** Whether there is a bound. Where there is none, an answer goes out as it was made. */
  readonly isBounded: boolean;
  /** @throws AppError 503 when its client, or all, would have too many. */
  take(bytes: number): void;
  /** Counts more of them, or fewer, where it is too late to refuse. */
  add(bytes: number): void;
  bytes(): number;
  release(): void;
}

export type TakeEvents = (events: ReadableStream<JobEvent | "idle">) => void;

/** Values that the middleware sets for the handlers of a request. */
export interface AppEnv {
  Bindings: {
    /** The request of a facade, or of MCP, which this one is a part of. */
    inNameOf?: Context<AppEnv>;
    takeEvents?: TakeEvents;
  };
  Variables: {
    correlationId: string;
    /** The request's W3C trace context. */
    traceparent: string | undefined;
    /** The request's own logger, with its correlation id and trace context. */
    log: Logger;
    /** Undefined if no accepted key was sent and the path is public. */
    caller: Caller | undefined;
    /** What the handlers of clients work with: its database shows the records of the caller's tenant. */
    client: ClientDeps;
    /** Bytes in memory: see `holdBytes`. */
    body: HeldBytes;
    answer: HeldBytes;
    /** Of a request that a facade, or MCP, sends: gets the events of a run, in place of the answer. */
    part: { takeEvents: TakeEvents | undefined } | undefined;
    /**
     * Identifies the token that an agent presents, on `/agent/v1/*` only: the SHA-256 (hex) of a
     * configured token, or the id of an agent's own token.
     */
    agentTokenHash: string;
  };
}

/** Origin of a request, for its record. */
export function originOf({ clientAddress }: RouteDeps, c: Context) {
  const { correlationId, traceparent, caller } = c.var as AppEnv["Variables"];
  const keyId = caller?.keyId ?? undefined;
  return { correlationId, traceparent, clientIp: clientAddress(c), keyId };
}

/** Who makes a change, for the audit log. */
export function actorOf({ clientAddress, now }: RouteDeps, c: Context): Actor {
  const { correlationId, caller } = c.var as AppEnv["Variables"];
  if (!caller) throw new Error("a change needs a caller");
  const { keyId, keyName, tenant } = caller;
  return { keyId, keyName, tenant, correlationId, clientIp: clientAddress(c), at: now() };
}

export const securityHeaderFields = {
  "X-Content-Type-Options": "nosniff",
  "X-Frame-Options": "DENY",
} as const;

/** Answers depend on the key, which caches do not know. Routes whose answers anybody may keep say so themselves. */
const notStored = "private, no-store";

/** Headers of every response: docs/contract.md 7.8. */
export const securityHeaders = createMiddleware(async (c, next) => {
  await next();
  const { headers } = c.res;
  for (const [name, value] of Object.entries(securityHeaderFields)) headers.set(name, value);
  if (!headers.has("Cache-Control")) headers.set("Cache-Control", notStored);
});

/** Whether a path is for monitoring the service: such a path needs no key and has no rate limit. */
export function isHealthPath(path: string): boolean {
  return /^\/health(\/(live|ready))?$/.test(path);
}
