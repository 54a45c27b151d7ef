import type { Sandbox } from "../../sandbox/sandbox.ts";
import { noRequests, type Rate } from "./sizing.ts";
import type { SandboxRequest } from "../../sandbox/sandbox-request.ts";

/** The containers of one kind. */
export type Kind = {
  readonly request: SandboxRequest;
  /** Containers that wait for a job, the oldest first. */
  readonly ready: ReadyContainer[];
  /** Jobs that wait for a start in progress; never more than `starting`. */
  readonly waiting: ((sandbox: Sandbox | null) => void)[];
  /** Starts ahead in progress. */
  starting: number;
  inUse: number;
  rate: Rate;
  /** Recent average duration of a start. */
  startMs: number;
  /** When a job was last requested or expected. */
  askedMs: number;
  /** Since when too few containers have been ready; null if there are enough. */
  shortSinceMs: number | null;
  /** Failed starts in a row, and when the next may be tried. */
  failures: number;
  retryMs: number;
};

export type ReadyContainer = { readonly sandbox: Sandbox; readonly sinceMs: number };

export function newKind(request: SandboxRequest): Kind {
  const counts = { starting: 0, inUse: 0, failures: 0, startMs: 0, askedMs: 0, retryMs: 0 };
  return {
    request,
    ready: [],
    waiting: [],
    rate: noRequests,
    shortSinceMs: null,
    ...counts,
  };
}

/**
 * Waits for a start in progress; null if none is unclaimed, or if it failed.
 *
 * @throws the signal's reason.
 */
export async function takeStarting(kind: Kind, signal: AbortSignal): Promise<Sandbox | null> {
  signal.throwIfAborted();
  if (kind.waiting.length >= kind.starting) return null;
  const { promise, resolve, reject } = Promise.withResolvers<Sandbox | null>();
  // Removed at once, so that no container goes to a job that has given up.
  const leave = (): void => {
    const at = kind.waiting.indexOf(resolve);
    if (at < 0) return;
    kind.waiting.splice(at, 1);
    reject(signal.reason as Error);
  };
  kind.waiting.push(resolve);
  signal.addEventListener("abort", leave);
  return promise.finally(() => signal.removeEventListener("abort", leave));
}

/**
 * Adds a container to those that wait. If it dies there, it leaves them and `onDeath` is called.
 */
export function addUntilDead({ ready }: Kind, entry: ReadyContainer, onDeath: () => void): void {
  ready.push(entry);
  const { died } = entry.sandbox;
  const drop = (): void => {
    const at = ready.indexOf(entry);
    if (at < 0) return;
    ready.splice(at, 1);
    onDeath();
  };
  if (died.aborted) return drop();
  died.addEventListener("abort", drop, { once: true });
}
