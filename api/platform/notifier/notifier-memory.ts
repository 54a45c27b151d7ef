import type { Notifier, Subscription, Topic } from "../../deps.ts";

/** A topic that wakes one subscription at a time. A subscription that cannot use the wake-up passes it on. */
interface SingleWake {
  notified: Set<Wake>;
  passOn: () => void;
}
type Wake = (single?: SingleWake) => void;

/** Delivers wake-ups within one process or isolate. */
export function memoryNotifier(): Notifier {
  const waking = new Map<Topic, Set<Wake>>();

  const send = (single: SingleWake): boolean => {
    for (const wake of waking.get("job") ?? []) {
      if (single.notified.has(wake)) continue;
      single.notified.add(wake);
      wake(single);
      return true;
    }
    return false;
  };

  return {
    notify(topic, delayMs = 0) {
      if (delayMs > 0) {
        setTimeout(() => this.notify(topic), delayMs);
        return false;
      }
      if (topic === "job") {
        const single: SingleWake = { notified: new Set(), passOn: () => void send(single) };
        return send(single);
      }
      const wakes = waking.get(topic);
      for (const wake of wakes ?? []) wake();
      return wakes !== undefined;
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
export function newSubscription(close: () => void): { wake: Wake; subscription: Subscription } {
  let notified = false;
  let resolveNext: (() => void) | undefined;
  /** Single wake-ups since the last `next`, and those that made `next` return. */
  let pending: SingleWake[] = [];
  let current: SingleWake[] = [];

  const wake = (single?: SingleWake): void => {
    if (single) pending.push(single);
    notified = true;
    resolveNext?.();
  };
  const next = async (timeoutMs: number, signal: AbortSignal): Promise<void> => {
    if (!notified && !signal.aborted) {
      const onAbort = (): void => wake();
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, timeoutMs);
        resolveNext = () => {
          clearTimeout(timer);
          resolve();
        };
        signal.addEventListener("abort", onAbort, { once: true });
      });
      signal.removeEventListener("abort", onAbort);
      resolveNext = undefined;
    }
    notified = false;
    current = pending.splice(0);
  };
  const passOn = (): void => {
    for (const single of current.splice(0)) single.passOn();
  };
  return {
    wake,
    subscription: {
      next,
      passOn,
      close() {
        close();
        current = pending.splice(0);
        passOn();
      },
    },
  };
}
