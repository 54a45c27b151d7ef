import { join } from "node:path";
import { getLogger } from "@logtape/logtape";
import { loadConfig, type Config } from "../../shared/config/config.ts";
import { type ClientDeps, clientDeps, type Deps } from "../deps.ts";
import { endOverdueJobs } from "../jobs/end-overdue.ts";
import { artifactFolder } from "../platform/artifacts/artifacts-fs.node.ts";
import { sha256 } from "../platform/hash.node.ts";
import { sharedReads } from "../platform/shared-reads.node.ts";
import { silenceMs } from "../waiting.ts";
import { newId } from "../new-id.ts";
import { memoryNotifier } from "../platform/notifier/notifier-memory.ts";
import type { Database } from "../store/database.ts";

/** Dependencies of an API with a given database and folder. They log nothing and use the test's clock. */
export function testDeps(
  db: Database,
  folder: string,
  now: () => number,
  config: Partial<Config> = {},
): Deps {
  return {
    config: loadConfig(config, {}),
    db,
    artifacts: artifactFolder(join(folder, "artifacts")),
    notifier: memoryNotifier(),
    log: getLogger(["airlock", "test"]),
    now,
    newId,
    sha256,
    clientAddress: () => "192.0.2.1",
    isStopping: () => false,
    isDraining: () => false,
    streamsEnd: new AbortController().signal,
    silenceMs,
    waitUntil: () => {},
    shareRead: sharedReads(),
    processMetrics: undefined,
    asset: () => Promise.resolve(undefined),
  };
}

/** The same for handlers of clients. */
export function clientOf(deps: Deps, tenant = "default"): ClientDeps {
  return clientDeps(
    deps,
    tenant,
    () => endOverdueJobs(deps),
    async () => {},
  );
}
