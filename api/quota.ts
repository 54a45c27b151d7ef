import type { ClientDeps } from "./deps.ts";
import { AppError } from "./errors.ts";
import { dayOf, fullQuota, type More, ownTenant, type TenantRow } from "./store/tenants.ts";

/**
 * The refusal by a limit of the tenant; undefined if it has room for this many more jobs and bytes. The
 * insert was refused before: this says why. Several jobs are an atomic batch.
 *
 * @param read The tenant as the insert saw it. Read later, it may have room again.
 */
export async function quotaExceeded(
  { db, now }: ClientDeps,
  more: More,
  read?: { tenant: TenantRow | undefined },
): Promise<AppError | undefined> {
  const row = read ? read.tenant : await ownTenant(db);
  const full = row && fullQuota(row, more, now());
  if (!full) return undefined;
  const never = whyNever(row, more);
  if (never !== undefined)
    return more.jobs > 1
      ? batchTooLarge(more.jobs, never)
      : new AppError("too_large", `This can never be accepted: ${never}.`);
  const { quota, limit, used } = full;
  const whose = `Tenant ${row.name}`;
  const midnightS = Math.ceil((dayOf(now()) + 1) * 86_400 - now() / 1000);
  const [detail, retryAfterS] = {
    max_queued: [`${whose} has ${used} waiting jobs (max_queued ${limit}).`, 5],
    max_stored_bytes: [
      `${whose} stores ${used} bytes, and ${more.bytes} more are above its limit (max_stored_bytes ${limit}): remove executions or files, whose bytes count for another hour.`,
      60,
    ],
    max_cpu_s_day: [
      `The jobs of tenant ${row.name} have used ${used} s of CPU time today (max_cpu_s_day ${limit}); the day ends at midnight UTC.`,
      midnightS,
    ],
  }[quota] as [string, number];
  return new AppError("quota_exceeded", detail, full, { "Retry-After": String(retryAfterS) });
}

/** Why an atomic batch, a job or a file does not even fit if nothing else of its tenant waits or is stored. */
function whyNever(
  { name, maxQueued, maxStoredBytes }: TenantRow,
  { jobs, bytes }: More,
): string | undefined {
  if (maxQueued !== null && jobs > Math.max(1, maxQueued))
    return `tenant ${name} may have ${maxQueued} waiting jobs (max_queued)`;
  if (maxStoredBytes !== null && bytes > maxStoredBytes)
    return `tenant ${name} may store ${maxStoredBytes} bytes (max_stored_bytes), and these are ${bytes}`;
  return undefined;
}

/** The refusal of an atomic batch. */
export function batchTooLarge(jobs: number, why: string): AppError {
  const detail = `An atomic batch of ${jobs} jobs can never be accepted: ${why}.`;
  return new AppError("batch_too_large", detail);
}
