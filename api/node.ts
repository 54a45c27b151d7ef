import type { Server } from "node:http";
import type { AddressInfo } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import Database from "libsql";
import { Config, ConfigError } from "../shared/config/config.ts";
import { describeError } from "../shared/log-line.ts";
import { closeToOthers, readConfig } from "../shared/process/files.node.ts";
import { startLog } from "../shared/process/log.ts";
import { createApp } from "./app.ts";
import { type Deps, type Notifier, silenceMs } from "./deps.ts";
import { checkExposure, requireSomeKey } from "./http/identity.ts";
import { newId } from "./ids.ts";
import { openArtifacts } from "./platform/artifacts.node.ts";
import { clientAddress, httpServer } from "./platform/http-server.node.ts";
import { memoryNotifier, pollingNotifier, readChanges } from "./platform/notifier.ts";
import {
  asset,
  processMetrics,
  sha256,
  sharedReads,
  stderrByTick,
} from "./platform/process.node.ts";
import { databaseFile, openDatabase, storedPaths } from "./platform/sqlite.node.ts";
import { postFromNode } from "./platform/webhook-post.node.ts";
import { database } from "./store/database.ts";
import { expire, removeOld } from "./sweep.ts";
import {
  hasReceivers,
  sendForever,
  wakingSender,
  wantedTypes,
  webhookSender,
} from "./webhooks/deliver.ts";
import { keepWantedTypes } from "./webhooks/sql.ts";

const expireEveryMs = 1000;
/** Retention is counted in days. */
const removeEveryMs = 60_000;
/** Under npm, one Ctrl-C arrives twice: from the terminal and from npm. Both count as one signal. */
const samePressMs = 1000;

/** Runs the API on Node until SIGTERM, SIGINT or the end of its parent. A second signal ends it at once. */
async function main(): Promise<void> {
  const [argument] = process.argv.slice(2);
  if (argument === "--help" || argument === "-h") {
    process.stdout.write(help());
    return;
  }
  if (argument !== undefined) {
    throw new ConfigError(
      `it takes no arguments, such as ${argument}: set keys instead; npm run api -- --help lists them`,
    );
  }
  const config = readConfig(process.env);
  const warning = checkExposure(config);
  const log = await startLog(config, "api", stderrByTick());
  if (warning) log.warn(warning);

  // Code, input and output of all jobs.
  process.umask(0o077);

  let phase: "serving" | "leaving" | "draining" = "serving";
  const streamsEnd = new AbortController();
  const open = openWork();
  const client = await openDatabase(config);
  const path = databaseFile(config);
  const use = path === undefined ? undefined : markUse(path);
  if (use?.isShared) {
    log.warn(
      "another API process uses {path}: stop one, unless it is ending. A client that waits at one hears seconds late of what the other did, and each counts rate limits for itself. See docs/guides/several-apis.md",
      { path },
    );
  }
  const wereOpen = closeToOthers(storedPaths(config));
  if (wereOpen.length > 0) {
    log.warn("other users of this host could read {paths}: not any more", {
      paths: wereOpen.join(", "),
    });
  }
  const db = database(client);
  await requireSomeKey({ config, db, now: Date.now });
  // A database file is used by one process only; a database server may have several.
  const others =
    client.protocol === "file"
      ? undefined
      : pollingNotifier((awaited) => readChanges(db, awaited, Date.now()), log);
  const notifier = others ?? memoryNotifier();
  const wakes = memoryNotifier();
  const deps: Deps = {
    config,
    db,
    artifacts: await openArtifacts(config, log),
    notifier: wakingSender(notifier, config, () => wakes.notify("webhook")),
    log,
    now: Date.now,
    newId,
    sha256,
    clientAddress: clientAddress(config.trusted_proxies),
    isStopping: () => phase !== "serving",
    isDraining: () => phase === "draining",
    streamsEnd: streamsEnd.signal,
    silenceMs,
    isWatched: true,
    waitUntil: (work, kind) => open.add(work, kind),
    shareRead: sharedReads(),
    processMetrics: processMetrics(),
    asset,
  };
  await keepWantedTypes(db, wantedTypes(config));
  const { server, url } = await listen(
    httpServer(counted(createApp(deps).fetch, open), deps),
    config,
  );
  const tasks = [
    repeat(async () => {
      // What both read shares a request to the database's server.
      void others?.look();
      await expire(deps).catch((error: unknown) => log.error("leases: {error}", { error }));
      return expireEveryMs;
    }),
    repeat(async () => {
      const isMoreLeft = await removeOld(deps).catch((error: unknown) => {
        log.error("retention: {error}", { error });
        return false;
      });
      return isMoreLeft ? expireEveryMs : removeEveryMs;
    }),
  ];
  const webhooks = hasReceivers(config) ? [sendWebhooks(deps, wakes)] : [];
  const stopped = stopRequested();
  log.info("listening on {url}", { url });
  process.send?.({ type: "ready", url });

  await stopped;
  phase = "leaving";
  log.info("stopping");
  await sleep(config.stop_delay_s * 1000);
  phase = "draining";
  streamsEnd.abort();
  // During this time, agents can still post their results.
  await Promise.race([open.synchronousIdle(), sleep(config.drain_grace_s * 1000)]);
  await close(server);
  await open.idle();
  await Promise.all([...tasks, ...webhooks].map((task) => task.stop()));
  client.close();
  use?.end();
}

/**
 * Marks a database file as used until this process ends, however it ends: with a lock on an empty file beside it. It
 * tells whether another process has marked it, and hinders none.
 */
function markUse(path: string): { isShared: boolean; end: () => void } | undefined {
  let isShared = false;
  try {
    const mark = new Database(`${path}-used`, { timeout: 100 });
    try {
      mark.exec("BEGIN EXCLUSIVE");
      mark.exec("ROLLBACK");
    } catch (error) {
      isShared = (error as { code?: string }).code === "SQLITE_BUSY";
    }
    mark.exec("BEGIN");
    // From the first read on, the transaction has the lock that others share.
    mark.prepare("SELECT 1 FROM sqlite_master").all();
    return { isShared, end: () => void mark.close() };
  } catch {
    return undefined;
  }
}

function help(): string {
  const keys = Object.entries(Config.shape)
    .filter(([, { description = "" }]) => !description.startsWith("Agent:"))
    .map(
      ([key, { description = "" }]) => `  AIRLOCK_${key.toUpperCase().padEnd(38)}${description}`,
    );
  return `Usage: npm run api

Serves the API alone, on a database that it makes where there is none, until SIGTERM or SIGINT; a second
signal ends it at once. Agents connect with a token of agent_tokens, or join (npm run agents -- invite).

Read from the environment, or as keys in lower case without AIRLOCK_ from airlock.toml (or the file
that AIRLOCK_CONFIG names):
${keys.join("\n")}
`;
}

type Fetch = Parameters<typeof httpServer>[0];

/**
 * Requests and streams that have not ended, answered or not. `synchronousIdle` resolves when those that
 * wait for their job have ended, and `idle` when all have.
 */
function openWork() {
  const open = new Map<Promise<unknown>, "synchronous" | undefined>();
  return {
    add(work: Promise<unknown>, kind?: "synchronous"): void {
      const ended = work.catch(() => {}).then(() => void open.delete(ended));
      open.set(ended, kind);
    },
    idle: () => Promise.all(open.keys()),
    synchronousIdle: () =>
      Promise.all([...open].filter(([, kind]) => kind === "synchronous").map(([work]) => work)),
  };
}

/** Wraps a handler so that its requests count as open work. */
function counted(handle: Fetch, open: ReturnType<typeof openWork>): Fetch {
  return (request, bindings) => {
    const answer = Promise.resolve(handle(request, bindings));
    open.add(answer, new URL(request.url).pathname === "/execute" ? "synchronous" : undefined);
    return answer;
  };
}

/** Repeats work. Each run returns the milliseconds until the next; `stop` waits for the current run. */
function repeat(work: () => Promise<number>): { stop: () => Promise<void> } {
  let isStopped = false;
  let current = Promise.resolve();
  let timer: NodeJS.Timeout;
  const schedule = (pauseMs: number): void => {
    timer = setTimeout(() => {
      current = work().then((nextMs) => (isStopped ? undefined : schedule(nextMs)));
    }, pauseMs);
  };
  schedule(expireEveryMs);
  return {
    stop() {
      isStopped = true;
      clearTimeout(timer);
      return current;
    },
  };
}

/** Sends webhooks until it is stopped. A call that is cut off by the stop is made again later. */
function sendWebhooks(deps: Deps, wakes: Notifier): { stop: () => Promise<void> } {
  const stopping = new AbortController();
  const sender = webhookSender(deps, postFromNode(deps.config), {
    atOnce: 20,
    onPlace: () => wakes.notify("webhook"),
  });
  const sending = sendForever(sender, deps, wakes.subscribe(["webhook"]), stopping.signal);
  return {
    async stop() {
      stopping.abort();
      await sending;
      await sender.stop();
    },
  };
}

function listen(server: Server, { host, port }: Config): Promise<{ server: Server; url: string }> {
  return new Promise((resolve, reject) => {
    server.listen(port, host, () =>
      resolve({ server, url: urlOf(server.address() as AddressInfo) }),
    );
    server.once("error", (error: NodeJS.ErrnoException) =>
      reject(explainListen(error, host, port)),
    );
  });
}

function explainListen(error: NodeJS.ErrnoException, host: string, port: number): Error {
  if (error.code === "EADDRINUSE") {
    return new ConfigError(`port ${port} on ${host} is taken: choose another (AIRLOCK_PORT)`);
  }
  return new ConfigError(`cannot listen on ${host}:${port}: ${error.message}`);
}

function urlOf({ address, port, family }: AddressInfo): string {
  return family === "IPv6" ? `http://[${address}]:${port}` : `http://${address}:${port}`;
}

function stopRequested(): Promise<void> {
  return new Promise((resolve) => {
    let first: { readonly name: string; readonly at: number } | undefined;
    const stop = (name: string): void => {
      const isEcho = name === first?.name && performance.now() - first.at < samePressMs;
      if (first && !isEcho) process.exit(130);
      first ??= { name, at: performance.now() };
      resolve();
    };
    process.on("SIGTERM", stop).on("SIGINT", stop).once("disconnect", resolve);
  });
}

/** Aborts the signals of open requests: requests that wait are answered or dropped, and no new work starts. */
function close(server: Server): Promise<void> {
  return new Promise((resolve) => {
    server.close(() => resolve());
    setTimeout(() => server.closeAllConnections(), 1000).unref();
  });
}

main().then(
  () => process.exit(0),
  (error: unknown) => {
    const text = error instanceof ConfigError ? error.message : describeError(error);
    process.stderr.write(`airlock api: ${text}\n`);
    process.exit(1);
  },
);
