import { limits } from "../../shared/wire/limits.ts";

/** Seconds of `Prefer: wait=N` (RFC 7240). A preference that cannot be understood is ignored. */
export function preferredWaitS(header: string | undefined): number | undefined {
  for (const preference of (header ?? "").split(",")) {
    const [, seconds] = /^\s*wait\s*=\s*"?(\d{1,9})"?\s*(;|$)/i.exec(preference) ?? [];
    if (seconds !== undefined) return Math.min(Number(seconds), limits.timeoutSchemaMaxS);
  }
  return undefined;
}
