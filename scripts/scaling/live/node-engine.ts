// Imported first, because it adds `openapi` to zod.
import { createApp } from "../../../api/app.ts";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { postFromNode } from "../../../api/platform/webhooks/post.node.ts";
import { database } from "../../../api/store/database.ts";
import { keepWantedTypes } from "../../../api/store/webhooks/events.ts";
import { testDeps } from "../../../api/testing/test-deps.ts";
import { hasReceivers, wantedTypes } from "../../../api/webhooks/receivers.ts";
import { sendForever, webhookSender } from "../../../api/webhooks/sender.ts";
import { wakingSender } from "../../../api/webhooks/wake.ts";
import type { Config } from "../../../shared/config/config.ts";
import { openFile, openServer } from "../metered-database.ts";
import { type LiveCounts, type LiveEngine, settings, untilQuiet } from "./engine.ts";
import { virtualTime } from "./virtual-time.ts";

/** Longer than the pause between two database calls of one operation here, such as a call of a webhook. */
const quietMs = 300;

/** The API on Node, in this process. */
export async function startNode(
  on: "file" | "server",
  changes: Partial<Config> = {},
): Promise<LiveEngine> {
  await using started = new AsyncDisposableStack();
  const folder = mkdtempSync(join(tmpdir(), "airlock-scaling-"));
  started.defer(() => rmSync(folder, { recursive: true }));
  const opened = started.use(await (on === "file" ? openFile : openServer)(folder));
  const time = virtualTime();
  const config = { ...settings, ...changes, database_url: opened.url };
  const given = testDeps(database(opened.client), folder, time.now, config);
  const wakes = time.notifier();
  const wake = (): void => wakes.notify("webhook");
  const deps = { ...given, notifier: wakingSender(time.notifier(), given.config, wake) };
  await keepWantedTypes(deps.db, wantedTypes(deps.config));

  if (hasReceivers(deps.config)) {
    const sender = webhookSender(deps, postFromNode(deps.config), { atOnce: 20, onPlace: wake });
    const stopping = new AbortController();
    const sending = sendForever(sender, deps, wakes.subscribe(["webhook"]), stopping.signal);
    started.defer(async () => {
      stopping.abort();
      await sending;
      await sender.stop();
    });
  }
  const app = createApp(deps);
  const counts = async (): Promise<LiveCounts> => ({
    ...opened.counts(),
    objectRequests: 0,
    alarms: 0,
  });
  const settled = (): Promise<void> => untilQuiet(opened, quietMs);
  const pass = (ms: number): Promise<void> => time.pass(ms, settled);
  const all = started.move();
  return {
    fetch: async (path, init) => app.request(path, init),
    counts,
    settled,
    pass,
    idleMinute: () => pass(60_000),
    [Symbol.asyncDispose]: () => all.disposeAsync(),
  };
}
