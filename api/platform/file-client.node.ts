import { createClient, type Client } from "@libsql/client";
import { prepareFile } from "../store/database.ts";
import { isStoreOutage } from "../store/outage.ts";

/** Milliseconds that a write waits for the lock of another process; nothing else runs meanwhile. */
const lockTimeoutMs = 2000;

/** Calls that use the connection. */
const calls = new Set<PropertyKey>(["execute", "batch", "migrate"]);

/**
 * A client of a local file, with one connection: PRAGMAs hold for the connection that ran them, and
 * a second one would meet SQLITE_BUSY at once.
 *
 * A statement that meets a locked or full database stays open in the driver, and no transaction can
 * commit after it; so the next call after such an error has a new connection, with its settings.
 */
export function fileClient(url: string): Client {
  const client = createClient({ url, concurrency: 1, timeout: lockTimeoutMs });
  let isFresh = false;
  let preparing: Promise<void> | undefined;

  const prepare = async (): Promise<void> => {
    client.reconnect();
    await prepareFile(client);
    isFresh = true;
  };
  const guarded = async (call: () => Promise<unknown>): Promise<unknown> => {
    if (!isFresh && !client.closed) {
      preparing ??= prepare().finally(() => (preparing = undefined));
      await preparing;
    }
    try {
      return await call();
    } catch (error) {
      if (isStoreOutage(error)) isFresh = false;
      throw error;
    }
  };

  return new Proxy(client, {
    get(target, key) {
      const value: unknown = Reflect.get(target, key);
      if (typeof value !== "function") return value;
      const method = value.bind(target) as (...args: unknown[]) => Promise<unknown>;
      return calls.has(key) ? (...args: unknown[]) => guarded(() => method(...args)) : method;
    },
  });
}
