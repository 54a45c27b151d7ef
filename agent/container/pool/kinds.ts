import type { Clock } from "../../waiting/clock.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import { kindKey, type SandboxRequest } from "../../sandbox/sandbox-request.ts";
import { newKind, type Kind } from "./kind.ts";
import { rateAt, shareOut, type Size, countWanted } from "./sizing.ts";

/** All kinds of containers with recent requests, and which of them have too few or too many. */
export type Kinds = {
  readonly all: () => Kind[];
  /** Notes a request that may come, and returns its kind. */
  readonly noteExpected: (request: SandboxRequest) => Kind;
  /** Notes a request that has come, and returns its kind. */
  readonly noteRequested: (request: SandboxRequest) => Kind;
  /** The most recently requested kind that lacks a container and may be filled now. */
  readonly nextToFill: () => Kind | undefined;
  /**
   * Removes surplus containers and those that have waited too long, oldest first, and forgets idle
   * kinds.
   */
  readonly trim: () => void;
};

export type KindsDeps = {
  readonly size: Size;
  /** How long a kind is kept ready after its last job, and the longest that a container waits. */
  readonly idleMs: number;
  readonly clock: Clock;
  readonly remove: (sandbox: Sandbox) => void;
};

/**
 * A start ahead waits until no job has arrived for this long, when the last one has most likely
 * ended.
 */
export const QUIET_MS = 100;
/** If jobs arrive all the time, a start ahead waits no longer than this. */
const PATIENCE_MS = 500;

export function createKinds({ size, idleMs, clock, remove }: KindsDeps): Kinds {
  const kinds = new Map<string, Kind>();
  let receivedMs = 0;

  const all = (): Kind[] => [...kinds.values()];
  const isOld = (ms: number): boolean => ms <= clock.nowMs() - idleMs;

  function noteExpected(request: SandboxRequest): Kind {
    const key = kindKey(request);
    const kind = kinds.get(key) ?? newKind(request);
    kinds.set(key, kind);
    kind.askedMs = clock.nowMs();
    kind.shortSinceMs ??= kind.askedMs;
    return kind;
  }

  function noteRequested(request: SandboxRequest): Kind {
    receivedMs = clock.nowMs();
    return noteExpected(request);
  }

  /** The kinds, most recently requested first, each with the number of containers to keep ready. */
  function shares(): { readonly kind: Kind; readonly share: number }[] {
    const nowMs = clock.nowMs();
    const line = all().toSorted((a, b) => b.askedMs - a.askedMs);
    const wants = line.map((kind) => {
      // Containers with a GPU are not kept ready: they would hold the device.
      if (kind.request.spec.gpus.length > 0 || isOld(kind.askedMs)) return 0;
      return countWanted(size, rateAt(kind.rate, nowMs), kind.startMs);
    });
    return shareOut(wants, size.most).map((share, n) => ({ kind: line[n]!, share }));
  }

  function nextToFill(): Kind | undefined {
    const nowMs = clock.nowMs();
    const isQuiet = receivedMs <= nowMs - QUIET_MS;
    return shares().find(({ kind, share }) => {
      const { ready, starting, waiting, retryMs } = kind;
      const young = ready.filter(({ sinceMs }) => !isOld(sinceMs)).length;
      const isShort = young + starting - waiting.length < share;
      kind.shortSinceMs = isShort ? (kind.shortSinceMs ?? nowMs) : null;
      const isUrgent = isShort && (kind.shortSinceMs ?? nowMs) <= nowMs - PATIENCE_MS;
      return isShort && retryMs <= nowMs && (isQuiet || isUrgent);
    })?.kind;
  }

  function trim(): void {
    for (const { kind, share } of shares()) {
      const { ready, starting, inUse } = kind;
      for (const { sandbox } of ready.splice(0, Math.max(0, ready.length - share))) remove(sandbox);
      const isEmpty = starting + inUse === 0;
      if (isEmpty && isOld(kind.askedMs)) kinds.delete(kindKey(kind.request));
    }
  }

  return {
    all,
    noteExpected,
    noteRequested,
    nextToFill,
    trim,
  };
}
