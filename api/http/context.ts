import type { Logger } from "@logtape/logtape";
import type { Scope } from "../../shared/wire/client/keys.ts";
import type { ClientDeps } from "../deps.ts";

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
  /** @throws AppError 503 when its client, or all, would have too many. */
  take(bytes: number): void;
  /** Counts more of them, or fewer, where it is too late to refuse. */
  add(bytes: number): void;
  bytes(): number;
  release(): void;
}

/** Values that the middleware sets for the handlers of a request. */
export interface AppEnv {
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
    /**
     * Identifies the token that an agent presents, on `/agent/v1/*` only: the SHA-256 (hex) of a
     * configured token, or the id of an agent's own token.
     */
    agentTokenHash: string;
  };
}
