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
  /** Containers that are being made ready for the next job of their key; taken out, one is that job's. */
  readonly rearming: RearmingContainer[];
  /** Jobs that wait for one of the starts under way, never more than there are. */
  readonly waiting: ((sandbox: Sandbox | null) => void)[];
  /** Starts under way that no job has asked for. */
  starting: number;
  inUse: number;
  rate: Rate;
  /** What a start takes, lately. */
  startMs: number;
  /** When a job last came, or was last expected. */
  askedMs: number;
  /** Since when there have been too few; null where there are enough. */
  shortSinceMs: number | null;
  /** Failed starts in a row, and when the next may be tried. */
  failures: number;
  retryMs: number;
};

export type ReadyContainer = { readonly sandbox: Sandbox; readonly sinceMs: number };

/** `keyId` is the API key whose jobs it ran; null stands for all who need none. */
export type UsedContainer = ReadyContainer & { readonly keyId: string | null };

/** `sandbox` resolves to null where it could not be made ready. */
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
 * Waits for a start under way; null where there is none to spare or it failed.
 *
 * @throws the signal's reason.
 */
export async function takeStarting(kind: Kind, signal: AbortSignal): Promise<Sandbox | null> {
  signal.throwIfAborted();
  if (kind.waiting.length >= kind.starting) return null;
  const { promise, resolve, reject } = Promise.withResolvers<Sandbox | null>();
  // At once, so that no container goes to a job that has given up.
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

/** Takes the container that has served the key last, if there is one. */
export function takeUsed({ used }: Kind, keyId: string | null): UsedContainer | undefined {
  const entry = used.findLast((one) => one.keyId === keyId);
  if (entry) removeEntry(used, entry);
  return entry;
}

/** Waits for a container that has just served the key: it takes less than to start one. */
export async function takeRearming(
  { rearming: returning }: Kind,
  keyId: string | null,
): Promise<Sandbox | null> {
  const entry = returning.find((one) => one.keyId === keyId);
  if (!entry) return null;
  removeEntry(returning, entry);
  return entry.sandbox.catch(() => null);
}

/** The row that a container's death is looked for in; a container comes back to it many times. */
const watched = new WeakMap<AbortSignal, readonly ReadyContainer[]>();

/** Puts a container into a row of its kind until it is taken out or dies, which is told. */
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

/** False where it is not there any more. */
export function removeEntry<Entry>(row: Entry[], entry: Entry): boolean {
  const at = row.indexOf(entry);
  if (at >= 0) row.splice(at, 1);
  return at >= 0;
}
