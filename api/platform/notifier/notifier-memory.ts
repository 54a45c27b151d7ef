import type { Notifier, Subscription, Topic } from "../../deps.ts";

/** A notification that goes to one subscription at a time, and to none twice. */
interface Errand {
  had: Set<Wake>;
  passOn: () => void;
}
type Wake = (errand?: Errand) => void;

/** Wake-ups within one process or isolate. */
export function memoryNotifier(): Notifier {
  const waking = new Map<Topic, Set<Wake>>();

  const send = (errand: Errand): void => {
    for (const wake of waking.get("job") ?? []) {
      if (errand.had.has(wake)) continue;
      errand.had.add(wake);
      return wake(errand);
    }
  };

  return {
    notify(topic, delayMs = 0) {
      if (delayMs > 0) {
        setTimeout(() => this.notify(topic), delayMs);
      } else if (topic === "job") {
        const errand: Errand = { had: new Set(), passOn: () => send(errand) };
        send(errand);
      } else {
        for (const wake of waking.get(topic) ?? []) wake();
      }
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
  /** Heard of since the last `next`; what that woke for. */
  let heard: Errand[] = [];
  let looking: Errand[] = [];

  const wake = (errand?: Errand): void => {
    if (errand) heard.push(errand);
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
    looking = heard.splice(0);
  };
  const passOn = (): void => {
    for (const errand of looking.splice(0)) errand.passOn();
  };
  return {
    wake,
    subscription: {
      next,
      passOn,
      close() {
        close();
        looking = heard.splice(0);
        passOn();
      },
    },
  };
}
