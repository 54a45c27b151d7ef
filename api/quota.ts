import type { ClientDeps } from "./deps.ts";
import { AppError } from "./errors.ts";
import { dayOf, fullQuota, ownTenant } from "./store/tenants.ts";

/**
 * The refusal by a limit of the tenant; undefined if it has room for this many more jobs and bytes. The
 * insert has refused before: this reads why.
 */
export async function quotaExceeded(
  { db, now }: ClientDeps,
  more: { jobs: number; bytes: number },
): Promise<AppError | undefined> {
  const row = await ownTenant(db);
  const full = row && fullQuota(row, more, now());
  if (!full) return undefined;
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
