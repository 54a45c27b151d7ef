import type { Logger } from "@logtape/logtape";

/** What the middleware leaves for the handlers of a request. */
export interface AppEnv {
  Variables: {
    correlationId: string;
    /** The request's own logger, with its correlation id. */
    log: Logger;
    /** SHA-256 (hex) of the accepted API key, where one was sent. */
    apiKeyHash: string | undefined;
    /**
     * Whose token an agent presents, on `/agent/v1/*` only: the SHA-256 (hex) of a configured one,
     * the id of an agent's own.
     */
    agentTokenHash: string;
  };
}
