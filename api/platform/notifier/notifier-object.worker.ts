import { waitUntil } from "cloudflare:workers";
import type { Logger } from "@logtape/logtape";
import { describeError } from "../../../shared/log-line.ts";
import type { Notifier, Topic } from "../../deps.ts";
import { newSubscription } from "./notifier-memory.ts";
import { isOfFollowers } from "./wakes.worker.ts";

/** The part of a Durable Object binding to `Wakes` that wake-ups need. */
export interface WakesObjects {
  getByName(name: string): {
    wake(topic: Topic): Promise<void>;
    fetch(url: string, init: RequestInit): Promise<Upgraded>;
  };
}
type Upgraded = Response & { webSocket?: (WebSocket & { accept(): void }) | null };

/** Delivers wake-ups across isolates through Durable Objects: one for each followed job, and one for all other topics. */
export function objectNotifier(objects: WakesObjects, log: Logger): Notifier {
  // A stub belongs to the request that made it.
  const wakes = (topics: Topic[]) => objects.getByName(topics.find(isOfFollowers) ?? "wakes");
  const lost = (error: unknown) =>
    log.warn("cannot use the Wakes object, querying the database instead: {reason}", {
      reason: describeError(error),
    });

  async function connect(topics: Topic[]): Promise<WebSocket> {
    const query = new URLSearchParams(topics.map((topic): [string, string] => ["topic", topic]));
    const headers = { Upgrade: "websocket" };
    const { status, webSocket } = await wakes(topics).fetch(`https://wakes/?${query.toString()}`, {
      headers,
    });
    if (!webSocket) throw new Error(`the object answered ${status}`);
    webSocket.accept();
    return webSocket;
  }

  return {
    notify(topic, delayMs = 0) {
      const sent = pause(delayMs).then(() => wakes([topic]).wake(topic));
      waitUntil(sent.catch(lost));
      return false;
    },
    subscribe(topics) {
      let isClosed = false;
      let connection: Promise<WebSocket | undefined> | undefined;
      const { wake, subscription } = newSubscription(() => {
        isClosed = true;
        void connection?.then((socket) => socket?.close());
      });
      const listen = async (): Promise<WebSocket | undefined> => {
        try {
          const socket = await connect(topics);
          socket.addEventListener("message", () => wake());
          socket.addEventListener("close", () => {
            connection = undefined;
          });
          // Notifications that came while the socket was being opened are lost, so the waiter must look.
          wake();
          return socket;
        } catch (error) {
          connection = undefined;
          if (!isClosed) lost(error);
          return undefined;
        }
      };
      connection = listen();
      return {
        passOn: () => subscription.passOn(),
        close: () => subscription.close(),
        next(timeoutMs, signal) {
          connection ??= listen();
          return subscription.next(timeoutMs, signal);
        },
      };
    },
  };
}

async function pause(ms: number): Promise<void> {
  if (ms > 0) await new Promise((resolve) => setTimeout(resolve, ms));
}
