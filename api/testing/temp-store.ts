import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Client } from "@libsql/client";
import { getLogger } from "@logtape/logtape";
import { Config, loadConfig } from "../../shared/config/config.ts";
import { type TenantLimits } from "../../shared/wire/access.ts";
import { claimNext } from "../agents/claim.ts";
import { createApp } from "../app.ts";
import { type ClientDeps, clientDeps, type Deps, silenceMs } from "../deps.ts";
import { newId } from "../ids.ts";
import { type ExecutionRow, findExecution, isLeasedRow, type LeasedRow } from "../jobs/sql.ts";
import { type NewExecution, submitExecution } from "../jobs/submit.ts";
import { endOverdueJobs } from "../jobs/wait.ts";
import { artifactFolder } from "../platform/artifacts.node.ts";
import { memoryNotifier } from "../platform/notifier.ts";
import { sha256, sharedReads } from "../platform/process.node.ts";
import { openDatabase } from "../platform/sqlite.node.ts";
import { database, type Database } from "../store/database.ts";
import { bindTenant, type TenantDb } from "../store/tenant.ts";
import { type Actor, shell } from "../tenants/sql.ts";
import { type OpenApiDocument } from "./openapi-document.ts";

export interface TempStore {
  folder: string;
  db: Database;
  close(): void;
}

/** A migrated database in a new folder, opened like the service opens it. */
export async function openTempStore(): Promise<TempStore> {
  const folder = mkdtempSync(join(tmpdir(), "airlock-store-"));
  const client = await openIn(folder);
  return {
    folder,
    db: database(client),
    close() {
      client.close();
      rmSync(folder, { recursive: true });
    },
  };
}

/** Opens the database of a data folder, or of a libSQL server, like the service at its start. */
export function openIn(folder: string, database_url?: string): Promise<Client> {
  return openDatabase(Config.parse({ data_dir: folder, database_url }));
}

/** What the handlers of a tenant's clients have. */
export function handleOf(db: Database, tenant = "default"): TenantDb {
  return bindTenant(db, tenant, (_, read) => read());
}

let made = 0;

/** A submission that the store accepts, with these columns. */
export function newExecution(columns: Partial<NewExecution> = {}): NewExecution {
  const id = `00000000-0000-7000-8000-${String(++made).padStart(12, "0")}`;
  return {
    id,
    mode: "async",
    jobType,
    timeoutS: 30,
    startupTimeoutS: 60,
    requirements: [],
    availableAt: 0,
    createdAt: 0,
    code: new Uint8Array([0x31]),
    input: new Uint8Array([0x7b, 0x7d]),
    codeBytes: 1,
    inputBytes: 2,
    codeHash: "code",
    inputHash: "input",
    submissionHash: "submission",
    correlationId: "correlation",
    clientIp: "127.0.0.1",
    ...columns,
  };
}

/** Who changes something in a test. */
export const by = (at = 0): Actor => shell("test", at);

/** The job type of `newExecution`, and the offer of it that a claim takes. */
export const jobType = "default";
export const offers = [{ jobType, jobVersion: "latest", jobRef: null, gpus: 0 }];

/** Stores a job with these columns, and returns its id. */
export async function storeJob(db: Database, columns: Partial<NewExecution> = {}): Promise<string> {
  const execution = newExecution(columns);
  await submitExecution(db, execution, 10_000);
  return execution.id;
}

/** Leases the job that waits longest. */
export async function leaseJob(
  db: Database,
  { now = 1, ttlMs = 999, agentId = "a" }: { now?: number; ttlMs?: number; agentId?: string } = {},
): Promise<LeasedRow> {
  const terms = { agentId, expiresAt: now + ttlMs, now };
  const [row] = await claimNext(db, terms, { slots: 1, gpus: 0, inputs: "mount" }, offers);
  return leased(row);
}

/** A new job that agent `a` has leased from 1 ms to 1000 ms. */
export async function leasedJob(
  db: Database,
  columns: Partial<NewExecution> = {},
): Promise<LeasedRow> {
  await storeJob(db, columns);
  return leaseJob(db);
}

/** The job with this id, which some agent has leased. */
export async function findLeasedJob(db: Database, id: string): Promise<LeasedRow> {
  return leased(await findExecution(db, id));
}

function leased(row: ExecutionRow | undefined): LeasedRow {
  if (!row || !isLeasedRow(row)) throw new Error("the job is not leased");
  return row;
}

export const noLimits: TenantLimits = {
  max_queued: null,
  max_running: null,
  max_stored_bytes: null,
  max_cpu_s_day: null,
  max_requests: null,
};

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

/** What `GET /openapi.json` answers with this configuration. */
export async function readDocument(config: Partial<Config> = {}): Promise<OpenApiDocument> {
  const store = await openTempStore();
  try {
    const app = createApp(testDeps(store.db, store.folder, Date.now, config));
    const headers = { "X-API-Key": config.api_keys?.[0] ?? "" };
    return (await (await app.request("/openapi.json", { headers })).json()) as OpenApiDocument;
  } finally {
    store.close();
  }
}
