import type { Logger } from "@logtape/logtape";
import type { Context } from "hono";
import type { Config } from "../shared/config/config.ts";
import type { ByteRange } from "./files/rules.ts";
import { type Database, isStoreOutage } from "./store/database.ts";
import { bindTenant, type TenantDb } from "./store/tenant.ts";

/** Everything that the API takes from outside. The entry file builds it once. */
export interface Deps {
  config: Config;
  db: Database;
  artifacts: ArtifactStore;
  notifier: Notifier;
  log: Logger;
  /** Epoch milliseconds. */
  now: () => number;
  /** A new UUID, version 7. */
  newId: () => string;
  /** SHA-256 of text (as UTF-8) or bytes, in hex. */
  sha256: (data: string | Uint8Array) => string | Promise<string>;
  /** The socket address of the client, which no header can forge. */
  clientAddress: (c: Context) => string;
  /** Whether the process is about to end: no more requests should be sent here. */
  isStopping: () => boolean;
  /** Whether the process waits for its last synchronous requests, and accepts no new ones. */
  isDraining: () => boolean;
  /** Aborted when streams of events must end, because the process does. Clients continue elsewhere. */
  streamsEnd: AbortSignal;
  /** An answer that takes longer than this sends white space. */
  silenceMs: number;
  /** Whether the process looks for what waits each second: see wakeForWaiting. */
  isWatched?: boolean;
  /** Keeps the process, or the request's isolate, alive until background work has ended. */
  waitUntil: (work: Promise<unknown>, kind?: "synchronous") => void;
  /** Reads from the database. Equal reads of several requests of a process may be joined into one. */
  shareRead: <T>(key: string, read: () => Promise<T>) => Promise<T>;
  /** Undefined if the process keeps no state between requests. */
  processMetrics: ProcessMetrics | undefined;
  /** Opens a file of the docs page (`docs/…`) or of the console (`console/…`). The caller checks the name. */
  asset: (name: string) => Promise<ReadableStream<Uint8Array> | undefined>;
}

/** What the routes of clients are made with: a handler gets its database with its request's `ClientDeps`. */
export type RouteDeps = Omit<Deps, "db" | "shareRead">;

/** What the handler of a client's request has: `c.get("client")`. Its database shows one tenant's records. */
export interface ClientDeps extends RouteDeps {
  db: TenantDb;
  /** Ends what time ends, of anybody: executions that no agent has leased within their `queue_timeout`, and sessions. */
  endOverdue: () => Promise<void>;
  /** @throws AppError 401 if the caller's key has become void, which takes a second. */
  recheck: () => Promise<void>;
}

export function clientDeps(
  { db, shareRead, ...deps }: Deps,
  tenant: string,
  endOverdue: () => Promise<void>,
  recheck: () => Promise<void>,
): ClientDeps {
  return { ...deps, db: bindTenant(db, tenant, shareRead), endOverdue, recheck };
}

/** Metrics of one process. The database keeps those of all processes. */
export interface ProcessMetrics {
  answered(request: { method: string; route: string; status: number; seconds: number }): void;
  /** Counts a request that failed because the database or the artifact store is locked, full or out of reach. */
  storeFailed(store: "database" | "artifacts"): void;
  /** All metrics of the process in Prometheus' text format. */
  text(): Promise<string>;
}

/** Wake-up hints. The database decides: a waiter queries it again after each wake-up. */
export interface Notifier {
  /**
   * Wakes the subscriptions to a topic, at once or after `delayMs`. Returns whether it knows that it has woken one.
   * Those of this process get the news with it; with "job", "session" and "build", the news is the job type.
   */
  notify(topic: Topic, delayMs?: number, news?: unknown): boolean;
  /**
   * Wakes a subscription to "job" while a job of the type is being stored: a claim that it makes at once comes behind
   * the write. Call the returned function when the job is stored. It wakes a subscription if none was woken, or if one
   * has begun meanwhile, which may have looked too early. Missing where writes may overtake each other.
   */
  announce?: (jobType: string) => () => void;
  /** Receives notifications from now on, including those between two calls of `next`. */
  subscribe(topics: Topic[]): Subscription;
}
/** What an agent may take. It is for one agent: one subscription of the process is woken, which may pass the wake-up on. */
export const works = ["job", "session", "build"] as const;
export type Work = (typeof works)[number];

export type Topic =
  | Work
  /** For the polls of all agents: what they may run has changed. */
  | "queue"
  /** For the sender of webhooks alone: see api/webhooks/deliver.ts. */
  | "webhook"
  | `agent:${string}`
  | `execution:${string}`
  | `output:${string}`
  | `build:${string}`
  | `session:${string}`
  /** A call of the session waits. For the answer to the result of the call before it. */
  | `call:${string}`;

/** What a subscription is woken for. */
export type Wants = Record<Work, Wanted>;

interface Wanted {
  jobTypes: ReadonlySet<string>;
  /** How many wake-ups it can use at once. More come only if nobody else can use them. */
  atOnce: number;
}

export interface Subscription {
  /** From now on, work wakes it only if it is of these types. Until then, of all. */
  wants(wants: Wants): void;
  /** Resolves at the next notification, after `timeoutMs`, or when the signal aborts. */
  next(timeoutMs: number, signal: AbortSignal): Promise<Woken>;
  /** Ends the wake-ups for work that `next` has returned. If more waits than was taken, each wakes another subscription. */
  settle(work: Work, isMore: boolean): void;
  /** Ends the subscription. Wake-ups for work that are not settled are passed on. */
  close(): void;
}

/** What has ended a wait. */
export interface Woken {
  /** False if the time is over. */
  isWoken: boolean;
  /** Whether a job may wait for this subscription. */
  forJob: boolean;
  /** Of the last notification that had some. */
  news?: unknown;
}

/** Stores artifact bytes. The API makes the keys, never a client. */
export interface ArtifactStore {
  /**
   * Stores a stream whole or not at all. It is durable when the promise resolves, with its SHA-256 (hex).
   *
   * @throws UploadMismatch when the size or the SHA-256 is not the announced one.
   * @throws ArtifactOutage when the store is full or out of reach.
   */
  put(key: string, body: ReadableStream<Uint8Array>, announced: Announced): Promise<string>;
  get(key: string, range?: ByteRange): Promise<ReadableStream<Uint8Array> | undefined>;
  /** Removes everything under `<prefix>/`. It is no error if there is nothing. */
  remove(prefix: string): Promise<void>;
  /** Removes the remains of uploads that broke off before a time (epoch ms). */
  removePartial(before: number): Promise<void>;
}

export interface Announced {
  sizeBytes: number;
  /** Undefined if the store is to compute it. */
  sha256?: string | undefined;
}

/** Announced with its hash, as agents' uploads are. */
export type Hashed = Announced & { sha256: string };

export class UploadMismatch extends Error {
  override name = "UploadMismatch";
  override message = "The size or SHA-256 of the upload differs from its headers.";
}

/** Artifacts cannot be stored or fetched at the moment. */
export class ArtifactOutage extends Error {
  override name = "ArtifactOutage";
}

/** Counts a request that has failed because a store was out of reach. */
export function countOutage(
  processMetrics: Deps["processMetrics"],
  error: Error | undefined,
): void {
  if (error instanceof ArtifactOutage) processMetrics?.storeFailed("artifacts");
  else if (error && isStoreOutage(error)) processMetrics?.storeFailed("database");
}

/** Wake-ups are hints, so the database is queried at least this often. */
export const backstopMs = 5_000;
/** Polls query it so seldom where the process itself looks for what waits: see `Deps.isWatched`. */
export const watchedMs = 15_000;

/** Proxies close a connection on which no byte comes: most after a minute, some after 20 s. */
export const silenceMs = 10_000;
