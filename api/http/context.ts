import type { Logger } from "@logtape/logtape";

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
    /**
     * Identifies the token that an agent presents, on `/agent/v1/*` only: the SHA-256 (hex) of a
     * configured token, or the id of an agent's own token.
     */
    agentTokenHash: string;
  };
}
