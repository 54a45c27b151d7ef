import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createApp } from "../../api/app.ts";
import type { Deps, Notifier } from "../../api/deps.ts";
import { memoryNotifier } from "../../api/platform/notifier/notifier-memory.ts";
import { database } from "../../api/store/database.ts";
import { testDeps } from "../../api/testing/test-deps.ts";
import type { DatabaseCounts } from "../bench/services/metered-sqld.ts";
import { openServer } from "./metered-database.ts";

/** What an operation takes of the database and of the wake-ups. */
export type Cost = DatabaseCounts & {
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

/** The service's own routes and store in this process, over a libSQL server that is counted. Time passes when it waits. */
export async function startMetered(): Promise<MeteredService> {
  await using ends = new AsyncDisposableStack();
  const folder = mkdtempSync(join(tmpdir(), "airlock-scaling-"));
  ends.defer(() => rmSync(folder, { recursive: true }));
  const { client, url, counts } = ends.use(await openServer(folder));
  let [now, wakes] = [Date.now(), 0];

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
    database_url: url,
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
      const before = { ...counts(), wakes };
      for (let n = 0; n < times; n++) await work();
      const after = { ...counts(), wakes };
      const took = (name: keyof Cost) => (after[name] - before[name]) / times;
      return {
        calls: took("calls"),
        writes: took("writes"),
        rowsRead: took("rowsRead"),
        rowsWritten: took("rowsWritten"),
        wakes: took("wakes"),
      };
    },
    [Symbol.asyncDispose]: () => kept.disposeAsync(),
  };
}
