import { AppError } from "../errors.ts";
import { findAgent } from "../store/agents/agents.ts";
import type { Database } from "../store/database.ts";
import type { Recorded } from "../store/output/artifacts.ts";

/** Shared by the posts for leases of jobs, builds and sessions. */

/**
 * Returns what has a lease.
 *
 * @throws AppError 403 when the lease belongs to an agent with another token; 409 when it is gone.
 */
export async function requireHeld<R extends { agentId: string | null }>(
  db: Database,
  leased: R | undefined,
  leaseId: string,
  tokenHash: string,
): Promise<R> {
  if (!leased?.agentId) throw leaseLost(leaseId);
  const agent = await findAgent(db, leased.agentId);
  if (agent && agent.tokenHash !== tokenHash) throw notYours(leaseId);
  return leased;
}

export function notYours(leaseId: string): AppError {
  return new AppError("forbidden", `Lease ${leaseId} belongs to another agent.`);
}

/** @throws AppError 409 or 413 unless the post was recorded. */
export function refuseUnless(recorded: Recorded, leaseId: string, place: string): void {
  if (recorded === "lease_lost") throw leaseLost(leaseId);
  if (recorded === "too_large") {
    throw new AppError("too_large", `Lease ${leaseId} may not post more content ${place}.`);
  }
  if (recorded === "conflict") {
    throw new AppError(
      "conflict",
      `Lease ${leaseId} has already posted different content ${place}.`,
    );
  }
}

export function leaseLost(leaseId: string): AppError {
  return new AppError("lease_lost", `Lease ${leaseId} no longer holds; drop the work.`);
}

export function fromBase64(text: string): Uint8Array {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}
