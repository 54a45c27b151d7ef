import { readFile } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";
import { parse } from "smol-toml";
import { startWorkerd } from "../../../api/testing/start-workerd.ts";
import type { Config } from "../../../shared/config/config.ts";
import { type DatabaseCounts, startMeteredSqld } from "../../bench/services/metered-sqld.ts";
import { countingWorker } from "./counting-worker.ts";
import { type LiveCounts, type LiveEngine, settings, untilQuiet } from "./engine.ts";

/** Longer than the pause between two database calls of one operation here, such as the wait for an alarm. */
const quietMs = 1000;

/** What wrangler.toml deploys, in workerd over a libSQL server (sqld). */
export async function startWorker(changes: Partial<Config> = {}): Promise<LiveEngine> {
  await using started = new AsyncDisposableStack();
  const sqld = started.use(await startMeteredSqld());
  const { durable_objects } = parse(await readFile("wrangler.toml", "utf8")) as {
    durable_objects: { bindings: { class_name: string }[] };
  };
  const classes = durable_objects.bindings.map(({ class_name }) => class_name);
  const config = { ...settings, ...changes, database_url: sqld.url, log_level: "error" };
  const worker = started.adopt(
    await startWorkerd(asVariables(config), true, countingWorker(classes)),
    (worker) => worker.close(),
  );
  const ask = (path: string, init?: RequestInit) => fetch(worker.url + path, init);
  const counts = async (): Promise<LiveCounts> => {
    const objects = (await (await ask("/counts")).json()) as Omit<LiveCounts, keyof DatabaseCounts>;
    return { ...sqld.counts(), ...objects };
  };
  const all = started.move();
  return {
    fetch: ask,
    counts,
    settled: () => untilQuiet(sqld, quietMs),
    pass: (ms) => sleep(ms),
    idleMinute: async () => void (await ask("/scheduled")),
    [Symbol.asyncDispose]: () => all.disposeAsync(),
  };
}

function asVariables(config: object): Record<string, string> {
  return Object.fromEntries(
    Object.entries(config).map(([key, value]: [string, unknown]) => [
      `AIRLOCK_${key.toUpperCase()}`,
      typeof value === "string"
        ? value
        : Array.isArray(value)
          ? value.join()
          : JSON.stringify(value),
    ]),
  );
}
