/** Long enough for a busy machine to renew in, short enough to wait for the end of. */
export const leaseTtlS = 6;

/** AIRLOCK_ variables of an API for tests that wait for the end of a lease. */
export const shortLeases = {
  AIRLOCK_LEASE_TTL_S: String(leaseTtlS),
  AIRLOCK_LIVENESS_S: "4",
  AIRLOCK_POLL_WAIT_S: "2",
};
