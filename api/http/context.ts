import type { Logger } from "@logtape/logtape";
import type { ClientDeps } from "../deps.ts";

/** The key, tenant and scopes of one request. */
export interface Caller {
  /** Stands for the key in records, limits and idempotency; null if keys are not required. */
  keyId: string | null;
  /** What the audit log shows. */
  keyName: string;
  tenant: string;
  scopes: readonly string[];
}

/** Values that the middleware sets for the handlers of a request. */
export interface AppEnv {
  Variables: {
    correlationId: string;
    /** The request's W3C trace context. */
    traceparent: string | undefined;
    /** The request's own logger, with its correlation id and trace context. */
    log: Logger;
    /** SHA-256 (hex) of the accepted API key, if one was sent. */
    apiKeyHash: string | undefined;
    /** Undefined if the path is public and no key was sent. */
    caller: Caller | undefined;
    /** What the handlers of clients work with: its database shows the records of the caller's tenant. */
    client: ClientDeps;
    /**
     * Identifies the token that an agent presents, on `/agent/v1/*` only: the SHA-256 (hex) of a
     * configured token, or the id of an agent's own token.
     */
    agentTokenHash: string;
  };
}
