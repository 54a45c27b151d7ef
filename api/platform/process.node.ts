import { hash } from "node:crypto";
import { existsSync, openAsBlob } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { collectDefaultMetrics, Counter, Histogram, Registry } from "prom-client";
import type { Deps, ProcessMetrics } from "../deps.ts";
import { sha256 as inBackground } from "../ids.ts";

/** Milliseconds between two looks at the event loop. With prom-client's 10, they took 2.4 ms of CPU time a second, not 0.75. */
const lookEveryMs = 50;

/** Metrics of this process: its requests, its failed database calls, its memory and its event loop. */
export function processMetrics(): ProcessMetrics {
  const registry = new Registry();
  collectDefaultMetrics({ register: registry, eventLoopMonitoringPrecision: lookEveryMs });
  const requests = new Histogram({
    name: "airlock_http_request_duration_seconds",
    help: "Requests answered by this process, until the answer begins; long polls wait.",
    labelNames: ["method", "route", "status"],
    buckets: [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60],
    registers: [registry],
  });
  const outages = new Counter({
    name: "airlock_store_outages_total",
    help: "Requests of this process that the database or the artifact store failed: locked, full or out of reach.",
    labelNames: ["store"],
    registers: [registry],
  });
  return {
    answered: ({ method, route, status, seconds }) =>
      requests.observe({ method, route, status: String(status) }, seconds),
    storeFailed: (store) => outages.inc({ store }),
    text: () => registry.metrics(),
  };
}

/**
 * Joins equal reads that are asked for in the same tick of the event loop, as by everybody whom one
 * notification has woken. A read that has begun is not joined: it may miss what has just been written.
 */
export function sharedReads(): Deps["shareRead"] {
  const waiting = new Map<string, Promise<unknown>>();
  return <T>(key: string, read: () => Promise<T>): Promise<T> => {
    const asked = waiting.get(key) as Promise<T> | undefined;
    if (asked) return asked;
    const reading = new Promise<void>((resolve) => setImmediate(resolve)).then(() => {
      waiting.delete(key);
      return read();
    });
    waiting.set(key, reading);
    return reading;
  };
}

/** Writes to standard error once per tick of the event loop: each write is a blocking system call. */
export function stderrByTick(): (line: string) => void {
  let lines: string[] = [];
  const flush = (): void => {
    const text = lines.join("");
    lines = [];
    if (text !== "") process.stderr.write(text);
  };
  process.on("exit", flush);
  return (line) => {
    if (lines.push(line) === 1) setImmediate(flush);
  };
}

const swagger = dirname(createRequire(import.meta.url).resolve("swagger-ui-dist/package.json"));
const built = fileURLToPath(new URL("../../dist/assets/", import.meta.url));

/** Opens a file of a page: of the docs page in the package that ships it, of the console where it was built. */
export async function asset(name: string): Promise<ReadableStream<Uint8Array> | undefined> {
  const [page, ...rest] = name.split("/");
  const file = page === "docs" ? join(swagger, ...rest) : join(built, name);
  return existsSync(file) ? (await openAsBlob(file)).stream() : undefined;
}

/** Above this size another thread computes the hash, which costs about 50 µs; below, this thread needs at most about 5 µs. */
const atOnceMax = 64 * 1024;

/** SHA-256 of text (as UTF-8) or bytes, in hex. */
export function sha256(data: string | Uint8Array): string | Promise<string> {
  return data.length > atOnceMax ? inBackground(data) : hash("sha256", data, "hex");
}
