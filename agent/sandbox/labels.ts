export const labels = {
  agentId: "io.airlock.agent",
  agentName: "io.airlock.owner",
  /** Set by the engine's client, see engine/host-scope.ts. */
  hostScope: "io.airlock.host-scope",
  leaseId: "io.airlock.lease",
} as const;

/**
 * The prefix of the names of an agent's containers: labels can come from an image, names cannot.
 */
export const namePrefix = (agentId: string): string => `airlock-${agentId}-`;
