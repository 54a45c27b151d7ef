import type { Clock } from "../waiting/clock.ts";
import type { Sandbox } from "../sandbox/types.ts";
import { kindOf, type Order } from "./order.ts";
import { newShelf, type Shelf, takeOut } from "./shelf.ts";
import { rateAt, shareOut, type Size, wanted } from "./sizing.ts";

/** The shelves of all kinds, and what is too little or too much on them. */
export type Stock = {
  readonly all: () => Shelf[];
  /** The shelf of an order that may come. */
  readonly expect: (order: Order) => Shelf;
  /** The shelf of an order that has come. */
  readonly receive: (order: Order) => Shelf;
  /** The shelf that lacks a container and may be filled now, the last asked for first. */
  readonly next: () => Shelf | undefined;
  /** Removes what is too much or has waited too long, the oldest first, and forgets idle kinds. */
  readonly trim: () => void;
};

export type StockDeps = {
  readonly size: Size;
  /** How long a kind is kept ready after its last job, and a container at the most. */
  readonly idleMs: number;
  readonly clock: Clock;
  readonly remove: (sandbox: Sandbox) => void;
};

/** A start ahead waits until the last job to come has most likely ended; */
export const QUIET_MS = 100;
/** but where jobs come all the time, no longer than this. */
const PATIENCE_MS = 500;

export function createStock({ size, idleMs, clock, remove }: StockDeps): Stock {
  const shelves = new Map<string, Shelf>();
  let receivedMs = 0;

  const all = (): Shelf[] => [...shelves.values()];
  const isOld = (ms: number): boolean => ms <= clock.nowMs() - idleMs;

  function expect(order: Order): Shelf {
    const kind = kindOf(order);
    const shelf = shelves.get(kind) ?? newShelf(order);
    shelves.set(kind, shelf);
    shelf.askedMs = clock.nowMs();
    shelf.shortSinceMs ??= shelf.askedMs;
    return shelf;
  }

  function receive(order: Order): Shelf {
    receivedMs = clock.nowMs();
    return expect(order);
  }

  /** The kinds, the last asked for first, each with the number that is to be ready. */
  function shares(): { readonly shelf: Shelf; readonly share: number }[] {
    const nowMs = clock.nowMs();
    const line = all().toSorted((a, b) => b.askedMs - a.askedMs);
    const wants = line.map((shelf) => {
      // Containers that hold a device must not lie in wait.
      if (shelf.order.spec.gpus.length > 0 || isOld(shelf.askedMs)) return 0;
      return wanted(size, rateAt(shelf.rate, nowMs), shelf.startMs);
    });
    return shareOut(wants, size.most).map((share, n) => ({ shelf: line[n]!, share }));
  }

  function next(): Shelf | undefined {
    const nowMs = clock.nowMs();
    const isQuiet = receivedMs <= nowMs - QUIET_MS;
    return shares().find(({ shelf, share }) => {
      const { ready, starting, waiting, retryMs } = shelf;
      const young = ready.filter(({ sinceMs }) => !isOld(sinceMs)).length;
      const isShort = young + starting - waiting.length < share;
      shelf.shortSinceMs = isShort ? (shelf.shortSinceMs ?? nowMs) : null;
      const isUrgent = isShort && (shelf.shortSinceMs ?? nowMs) <= nowMs - PATIENCE_MS;
      return isShort && retryMs <= nowMs && (isQuiet || isUrgent);
    })?.shelf;
  }

  function trim(): void {
    for (const { shelf, share } of shares()) {
      const { ready, used, starting, inUse } = shelf;
      for (const { sandbox } of ready.splice(0, Math.max(0, ready.length - share))) remove(sandbox);
      for (const entry of used.filter(({ sinceMs }) => isOld(sinceMs))) {
        if (takeOut(used, entry)) remove(entry.sandbox);
      }
      const isEmpty = starting + inUse + used.length === 0;
      if (isEmpty && isOld(shelf.askedMs)) shelves.delete(kindOf(shelf.order));
    }
    makeRoom();
  }

  /** Containers that serve one key only go before any that serves all. */
  function makeRoom(): void {
    const room = size.most - all().reduce((sum, { ready }) => sum + ready.length, 0);
    const used = all().flatMap((shelf) => shelf.used.map((entry) => ({ shelf, entry })));
    used.sort((a, b) => a.entry.sinceMs - b.entry.sinceMs);
    for (const { shelf, entry } of used.slice(0, Math.max(0, used.length - room))) {
      if (takeOut(shelf.used, entry)) remove(entry.sandbox);
    }
  }

  return { all, expect, receive, next, trim };
}
