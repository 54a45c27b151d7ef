import type { Logger } from "@logtape/logtape";
import type { Context } from "hono";
import type { Config } from "../shared/config/config.ts";
import type { ByteRange } from "./domain/byte-range.ts";
import type { Database } from "./store/database.ts";

/** Files of swagger-ui-dist that the docs page loads. */
export type DocsAsset = "swagger-ui.css" | "swagger-ui-bundle.js" | "favicon-32x32.png";

/** All that the API takes from outside; built once by the entry file. */
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
  /** Whether it waits for its last synchronous requests, and takes no new ones. */
  isDraining: () => boolean;
  /** Undefined where a process keeps nothing of its own between requests. */
  processMetrics: ProcessMetrics | undefined;
  docsAsset: (name: DocsAsset) => Promise<ReadableStream<Uint8Array> | undefined>;
}

/** Metrics of one process, beside those that the database keeps for all. */
export interface ProcessMetrics {
  answered(request: { method: string; route: string; status: number; seconds: number }): void;
  /** A request met a database or an artifact store that is locked, full or out of reach. */
  storeFailed(store: "database" | "artifacts"): void;
  /** All of it in Prometheus' text format. */
  text(): Promise<string>;
}

/** Wake-up hints. The database is the truth: whoever waits asks it again after each wake. */
export interface Notifier {
  /** Wakes whoever waits for a topic, at once or after `delayMs`. */
  notify(topic: Topic, delayMs?: number): void;
  /** Hears of notifications from now on, also of those between two calls of `next`. */
  subscribe(topics: Topic[]): Subscription;
}
/** A "job" is for one agent: of those who wait within a process one is woken, who may pass it on. */
export type Topic = "job" | "queue" | `agent:${string}` | `execution:${string}` | `build:${string}`;

export interface Subscription {
  /** Resolves at the next notification, after `timeoutMs`, or when the signal aborts. */
  next(timeoutMs: number, signal: AbortSignal): Promise<void>;
  /** Wakes somebody else for each job that the last `next` woke for. */
  passOn(): void;
  /** Ends it; a job that nobody has looked for since is passed on. */
  close(): void;
}

/** Where artifact bytes live. Keys are made by us, never by a client. */
export interface ArtifactStore {
  /**
   * Stores a stream whole or not at all, durable when it resolves.
   *
   * @throws UploadMismatch when size or SHA-256 (hex) differ from what was announced.
   * @throws ArtifactOutage when there is no room, or the store is out of reach.
   */
  put(key: string, body: ReadableStream<Uint8Array>, announced: Announced): Promise<void>;
  get(key: string, range?: ByteRange): Promise<ReadableStream<Uint8Array> | undefined>;
  /** Removes all that is stored under `<prefix>/`; nothing there is no error. */
  remove(prefix: string): Promise<void>;
  /** Removes what is left of uploads that broke off before a time (epoch ms). */
  removePartial(before: number): Promise<void>;
}

export interface Announced {
  sizeBytes: number;
  sha256: string;
}

export class UploadMismatch extends Error {
  override name = "UploadMismatch";
}

/** Artifacts cannot be stored or fetched for the moment. */
export class ArtifactOutage extends Error {
  override name = "ArtifactOutage";
}
