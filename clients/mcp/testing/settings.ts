export const agentToken = "agent-token-0-0123456789";
export const key = "api-key-0-0123456789abcd";
/** The tools in the order in which they are listed. */
export const toolNames = [
  "execute_code",
  "get_job",
  "cancel_job",
  "list_artifacts",
  "read_artifact",
  "create_session",
  "run_in_session",
  "close_session",
];
export const settings = {
  AIRLOCK_AGENT_TOKENS: agentToken,
  AIRLOCK_API_AUTH_ENABLED: "true",
  AIRLOCK_API_KEYS: key,
  AIRLOCK_API_RATE_LIMIT_REQUESTS: "100000",
  AIRLOCK_MAX_TIMEOUT: "600",
  AIRLOCK_ALLOWED_ORIGINS: "https://app.example",
  AIRLOCK_JOB_TYPES: JSON.stringify({ ml: { requirements: ["numpy==2.3.4"], timeout: 300 } }),
};
