import type { Deps } from "../deps.ts";

const busyCodes = /^SQLITE_(BUSY|LOCKED|FULL|IOERR|CANTOPEN|READONLY|PROTOCOL)/;

/** Whether an error means that the database is locked, full or out of reach; any other error is a bug. */
export function isStoreOutage(error: unknown): boolean {
  for (let at = error; at instanceof Error; at = at.cause) {
    const code = (at as { code?: unknown }).code;
    if (typeof code === "string" && (busyCodes.test(code) || connectionCodes.has(code)))
      return true;
    if (at.name === "LibsqlError" && code === "SERVER_ERROR") return true;
    if (at.name === "TimeoutError") return true;
    if (at.name === "TypeError" && at.message === "fetch failed") return true;
    // workerd's message for a connection that is refused or lost.
    if ((at as { retryable?: unknown }).retryable === true) return true;
  }
  return false;
}

/** CLIENT_CLOSED: the call waited for a connection that was being replaced. */
const connectionCodes = new Set([
  "ECONNREFUSED",
  "ECONNRESET",
  "ETIMEDOUT",
  "EPIPE",
  "ENOTFOUND",
  "CLIENT_CLOSED",
]);

const patienceMs = 60_000;
const pauseMs = 500;

/**
 * Repeats work for up to `patienceMs` while the database is out of reach. It is for a request whose job
 * is or may be stored: a client that got an error would send the job again.
 */
export async function rideOut<T>({ now }: Pick<Deps, "now">, work: () => Promise<T>): Promise<T> {
  for (const giveUpAt = now() + patienceMs; ;) {
    try {
      return await work();
    } catch (error) {
      if (!isStoreOutage(error) || now() >= giveUpAt) throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, pauseMs));
  }
}
