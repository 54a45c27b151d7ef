/** What executions, builds and sessions have in common: one agent at a time holds the lease of each. */

/** The columns of what waits for another agent. */
export const queuedAgain = {
  status: "queued",
  leaseId: null,
  agentId: null,
  leaseExpiresAt: null,
  startedAt: null,
} as const;

export function isLeased(
  { leaseExpiresAt }: { leaseExpiresAt: number | null },
  now: number,
): boolean {
  return (leaseExpiresAt ?? 0) > now;
}
