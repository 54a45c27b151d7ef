import type { Notifier } from "../../../api/deps.ts";
import { memoryNotifier } from "../../../api/platform/notifier/notifier-memory.ts";

/** A clock that stands still unless it is moved, and notifiers that use it for their time limits. */
export type VirtualTime = {
  readonly now: () => number;
  readonly notifier: () => Notifier;
  /** Moves the clock, with a stop at each time limit on the way. `settled` resolves when its waiters have done their work. */
  readonly pass: (ms: number, settled: () => Promise<void>) => Promise<void>;
};

/** The longest timer that Node has. */
const neverMs = 2 ** 31 - 1;

export function virtualTime(): VirtualTime {
  let now = Date.now();
  const limits = new Set<{ readonly at: number; readonly over: AbortController }>();

  function notifier(): Notifier {
    const local = memoryNotifier();
    return {
      notify: (topic) => local.notify(topic),
      subscribe(topics) {
        const subscription = local.subscribe(topics);
        return {
          ...subscription,
          async next(timeoutMs, signal) {
            const limit = { at: now + timeoutMs, over: new AbortController() };
            limits.add(limit);
            await subscription.next(neverMs, AbortSignal.any([signal, limit.over.signal]));
            limits.delete(limit);
          },
        };
      },
    };
  }
  return {
    now: () => now,
    notifier,
    async pass(ms, settled) {
      const until = now + ms;
      for (;;) {
        await settled();
        const [next] = [...limits].filter(({ at }) => at <= until).sort((a, b) => a.at - b.at);
        if (!next) break;
        now = next.at;
        next.over.abort();
      }
      now = until;
    },
  };
}
