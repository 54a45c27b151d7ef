import type { Config } from "../../shared/config/config.ts";
import type { Notifier } from "../deps.ts";
import { hasReceivers } from "./receivers.ts";

/**
 * A notifier that also wakes the sender of webhooks: every end of an execution is notified. Without
 * receivers nothing is woken.
 */
export function wakingSender(notifier: Notifier, config: Config, wake: () => void): Notifier {
  if (!hasReceivers(config)) return notifier;
  return {
    notify(topic, delayMs) {
      if (topic === "webhook" || topic.startsWith("execution:")) wake();
      return topic !== "webhook" && notifier.notify(topic, delayMs);
    },
    subscribe: (topics) => notifier.subscribe(topics),
  };
}
