import type { CallItem, DisplayItem } from "../sandbox/job.ts";

/** What the code shows and calls until the API has it. It is posted in its order, one post at a time. */
export interface UnsentItems {
  readonly add: (item: DisplayItem | CallItem) => void;
  readonly isEmpty: () => boolean;
  /** Number of the last item that the API has; 0 if it has none. */
  readonly lastSent: () => number;
  /** Posts the next few. */
  readonly send: (signal: AbortSignal) => Promise<void>;
  /** Posts all up to the one with this number. */
  readonly sendUpTo: (number: number, signal: AbortSignal) => Promise<void>;
}

/** Each has up to a megabyte. */
const AT_ONCE = 8;

export function createUnsentItems(
  post: (items: (DisplayItem | CallItem)[], signal: AbortSignal) => Promise<void>,
): UnsentItems {
  let items: (DisplayItem | CallItem)[] = [];
  let last = 0;
  let turn = Promise.resolve();

  async function sendNext(signal: AbortSignal): Promise<void> {
    const next = items.slice(0, AT_ONCE);
    const end = next.at(-1);
    if (end === undefined) return;
    await post(next, signal);
    items = items.slice(next.length);
    last = end.number;
  }

  async function send(signal: AbortSignal): Promise<void> {
    const own = turn.catch(() => {}).then(async () => sendNext(signal));
    turn = own;
    await own;
  }

  return {
    add: (item) => void items.push(item),
    isEmpty: () => items.length === 0,
    lastSent: () => last,
    send,
    async sendUpTo(number, signal) {
      const isSent = (): boolean => last >= number;
      while (!isSent()) await send(signal);
    },
  };
}
