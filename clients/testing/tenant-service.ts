import { startNode } from "../../api/testing/start-node.ts";

/** Of an operator, who may do everything. */
export const operatorKey = "operator-0123456789";

export const agentToken = "agent-token-0123456789";

/** A service that asks for keys. */
export const startTenantService = () =>
  startNode({
    AIRLOCK_API_AUTH_ENABLED: "true",
    AIRLOCK_OPERATOR_KEYS: operatorKey,
    AIRLOCK_AGENT_TOKENS: agentToken,
    AIRLOCK_API_RATE_LIMIT_ENABLED: "false",
  });
