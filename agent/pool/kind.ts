import type { Sandbox } from "../sandbox/types.ts";
import { noRequests, type Rate } from "./sizing.ts";
import type { ContainerRequest } from "./container-request.ts";

/** The containers of one kind. */
export type Kind = {
  readonly request: ContainerRequest;
  /** Containers that wait for a job, the oldest first. */
  readonly ready: ReadyContainer[];
  /** Containers that have served a key and can serve it again, the oldest first. */
  readonly used: UsedContainer[];
  /**
   * Containers that are being made ready for the next job of their key. A job that takes one out
   * gets that container.
   */
  readonly rearming: RearmingContainer[];
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

/** `keyId` is the API key whose jobs it ran; null if jobs need no key. */
export type UsedContainer = ReadyContainer & { readonly keyId: string | null };

/** `sandbox` resolves to null if the container could not be made ready. */
export type RearmingContainer = {
  readonly keyId: string | null;
  readonly sandbox: Promise<Sandbox | null>;
};

export function newKind(request: ContainerRequest): Kind {
  const counts = { starting: 0, inUse: 0, failures: 0, startMs: 0, askedMs: 0, retryMs: 0 };
  return {
    request,
    ready: [],
    used: [],
    rearming: [],
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

/** Takes the container that ran the key's most recent job, if there is one. */
export function takeUsed({ used }: Kind, keyId: string | null): UsedContainer | undefined {
  const entry = used.findLast((one) => one.keyId === keyId);
  if (entry) removeEntry(used, entry);
  return entry;
}

/** Waits for a container that has just run a job of the key: that is faster than starting one. */
export async function takeRearming(
  { rearming: returning }: Kind,
  keyId: string | null,
): Promise<Sandbox | null> {
  const entry = returning.find((one) => one.keyId === keyId);
  if (!entry) return null;
  removeEntry(returning, entry);
  return entry.sandbox.catch(() => null);
}

/**
 * For each `died` signal, the list that has a listener already: a reused container is added to its
 * list many times.
 */
const watched = new WeakMap<AbortSignal, readonly ReadyContainer[]>();

/**
 * Adds a container to a list of its kind. If it dies there, it is removed and `onDeath` is called.
 */
export function addUntilDead<Entry extends ReadyContainer>(
  row: Entry[],
  entry: Entry,
  onDeath: () => void,
): void {
  row.push(entry);
  const { sandbox } = entry;
  const { died } = sandbox;
  const drop = (): void => {
    const current = row.find((one) => one.sandbox === sandbox);
    if (current && removeEntry(row, current)) onDeath();
  };
  if (died.aborted) return drop();
  if (watched.get(died) === row) return;
  watched.set(died, row);
  died.addEventListener("abort", drop, { once: true });
}

/** False if the entry is not in the list any more. */
export function removeEntry<Entry>(row: Entry[], entry: Entry): boolean {
  const at = row.indexOf(entry);
  if (at >= 0) row.splice(at, 1);
  return at >= 0;
}
