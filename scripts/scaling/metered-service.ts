import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createClient } from "@libsql/client/web";
import { createApp } from "../../api/app.ts";
import type { Deps, Notifier } from "../../api/deps.ts";
import { memoryNotifier } from "../../api/platform/notifier/notifier-memory.ts";
import { database } from "../../api/store/database.ts";
import { startSqld } from "../../api/testing/start-sqld.ts";
import { testDeps } from "../../api/testing/test-deps.ts";

/** What an operation takes of the database and of the wake-ups. */
export type Cost = {
  /** Requests to the database: each is a statement, or several in one transaction. */
  readonly calls: number;
  /** Of the calls, those that wrote. */
  readonly writes: number;
  /** As libSQL counts them, which is what Turso bills; indexes and triggers are in it. */
  readonly rowsRead: number;
  readonly rowsWritten: number;
  /** Topics told, and waits begun: each is a request to the Durable Object of a worker. */
  readonly wakes: number;
};

export type MeteredService = AsyncDisposable & {
  readonly deps: Deps;
  readonly app: ReturnType<typeof createApp>;
  /** Lets time pass, for the service alone. */
  readonly advance: (ms: number) => void;
  /** What the work took, divided by `times`. */
  readonly costOf: (times: number, work: () => Promise<unknown>) => Promise<Cost>;
};

export const token = "a-token-of-16-characters";

/** The service's own routes and store in this process, over a libSQL server that tells what each call took. */
export async function startMetered(): Promise<MeteredService> {
  await using ends = new AsyncDisposableStack();
  const folder = mkdtempSync(join(tmpdir(), "airlock-scaling-"));
  ends.defer(() => rmSync(folder, { recursive: true }));
  const sqld = await startSqld(join(folder, "db"));
  ends.defer(() => sqld.close());
  let [now, calls, writes, rowsRead, rowsWritten, wakes] = [Date.now(), 0, 0, 0, 0, 0];

  async function metered(request: Request): Promise<Response> {
    const response = await fetch(request);
    const text = await response.clone().text();
    const written = sumOf(text, "rows_written");
    calls += 1;
    writes += Number(written > 0);
    rowsWritten += written;
    rowsRead += sumOf(text, "rows_read");
    return response;
  }
  const client = createClient({ url: sqld.url, fetch: metered });
  ends.defer(() => client.close());

  const local = memoryNotifier();
  /** Nobody else is there to wake a poll before its time is up, which it is at once. */
  const notifier: Notifier = {
    notify: (topic) => {
      wakes += 1;
      local.notify(topic);
    },
    subscribe: () => {
      wakes += 1;
      return {
        next: (timeoutMs) => Promise.resolve(void (now += timeoutMs)),
        passOn() {},
        close() {},
      };
    },
  };
  const config = {
    agent_tokens: [token],
    database_url: sqld.url,
    api_rate_limit_requests: 1_000_000,
    max_queue_size: 10_000,
  };
  const deps = { ...testDeps(database(client), folder, () => now, config), notifier };
  const app = createApp(deps);
  const kept = ends.move();
  return {
    deps,
    app,
    advance: (ms) => (now += ms),
    costOf: async (times, work) => {
      [calls, writes, rowsRead, rowsWritten, wakes] = [0, 0, 0, 0, 0];
      for (let n = 0; n < times; n++) await work();
      const sums = { calls, writes, rowsRead, rowsWritten, wakes };
      return Object.fromEntries(
        Object.entries(sums).map(([name, sum]) => [name, sum / times]),
      ) as Cost;
    },
    [Symbol.asyncDispose]: () => kept.disposeAsync(),
  };
}

function sumOf(text: string, field: string): number {
  const found = text.matchAll(new RegExp(`"${field}":(\\d+)`, "g"));
  return [...found].reduce((sum, [, digits]) => sum + Number(digits), 0);
}
