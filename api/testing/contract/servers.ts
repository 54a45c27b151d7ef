/** Keys and tokens that the servers under test accept. */
export const agentTokens = ["agent-token-0-0123456789", "agent-token-1-0123456789"] as const;
export const apiKeys = ["api-key-0-0123456789abcd", "api-key-1-0123456789abcd"] as const;
export const customHeader = "X-Airlock-Key";

export const maxRequestBytes = 64 * 1024;
export const maxTimeoutS = 600;
export const maxQueueSize = 3;
export const leaseTtlS = 2;

const common = {
  AIRLOCK_AGENT_TOKENS: agentTokens.join(","),
  AIRLOCK_API_RATE_LIMIT_ENABLED: "false",
  AIRLOCK_LOG_LEVEL: "error",
  AIRLOCK_MAX_REQUEST_BYTES: String(maxRequestBytes),
  AIRLOCK_MAX_TIMEOUT: String(maxTimeoutS),
  AIRLOCK_MAX_ARTIFACT_BYTES: "100000",
  AIRLOCK_JOB_TYPES: JSON.stringify({ ml: { memory_limit: "1g", timeout: 300 } }),
};

/** The configurations that the rows of the table ask for, as AIRLOCK_ variables. */
export const servers = {
  open: common,
  "with keys": { ...common, AIRLOCK_API_AUTH_ENABLED: "true", AIRLOCK_API_KEYS: apiKeys.join(",") },
  "with a header of its own": {
    ...common,
    AIRLOCK_API_AUTH_ENABLED: "true",
    AIRLOCK_API_KEYS: apiKeys[0],
    AIRLOCK_API_AUTH_HEADER: customHeader,
    AIRLOCK_API_DOCS_PUBLIC: "true",
  },
  "with a short queue": { ...common, AIRLOCK_MAX_QUEUE_SIZE: String(maxQueueSize) },
  "with short leases": {
    ...common,
    AIRLOCK_LEASE_TTL_S: String(leaseTtlS),
    AIRLOCK_RENEW_EVERY_S: "0.5",
  },
} satisfies Record<string, Record<string, string>>;
export type ServerName = keyof typeof servers;
