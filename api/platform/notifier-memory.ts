import type { Notifier, Subscription, Topic } from "../deps.ts";

/** Wake-ups within one process or isolate. */
export function memoryNotifier(): Notifier {
  const waking = new Map<Topic, Set<() => void>>();

  return {
    notify(topic, delayMs = 0) {
      if (delayMs > 0) setTimeout(() => this.notify(topic), delayMs);
      else for (const wake of waking.get(topic) ?? []) wake();
    },
    subscribe(topics) {
      const { wake, subscription } = newSubscription(() => {
        for (const topic of topics) {
          const wakes = waking.get(topic);
          wakes?.delete(wake);
          if (wakes?.size === 0) waking.delete(topic);
        }
      });
      for (const topic of topics) {
        const wakes = waking.get(topic) ?? new Set();
        waking.set(topic, wakes.add(wake));
      }
      return subscription;
    },
  };
}

/** A subscription that `wake` notifies. */
export function newSubscription(close: () => void): {
  wake: () => void;
  subscription: Subscription;
} {
  let notified = false;
  let resolveNext: (() => void) | undefined;
  const wake = () => {
    notified = true;
    resolveNext?.();
  };
  const next = async (timeoutMs: number, signal: AbortSignal) => {
    if (!notified && !signal.aborted) {
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, timeoutMs);
        resolveNext = () => {
          clearTimeout(timer);
          signal.removeEventListener("abort", wake);
          resolve();
        };
        signal.addEventListener("abort", wake, { once: true });
      });
      resolveNext = undefined;
    }
    notified = false;
  };
  return { wake, subscription: { next, close } };
}
