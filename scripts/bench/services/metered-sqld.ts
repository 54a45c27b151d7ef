import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { buffer } from "node:stream/consumers";
import { Pool } from "undici";
import { startSqld } from "../../../api/testing/start-sqld.ts";

/** Counts of what a libSQL server was asked for. */
export type DatabaseCounts = {
  /** Requests: each is a statement, or several in one transaction. */
  readonly calls: number;
  /** Of the calls, those that wrote. */
  readonly writes: number;
  /** As libSQL counts them, which is what Turso bills. Indexes and triggers are included. */
  readonly rowsRead: number;
  readonly rowsWritten: number;
};

/** A libSQL server behind a proxy that counts, with an empty schema. */
export type MeteredSqld = AsyncDisposable & {
  readonly url: string;
  /** Everything since it started. */
  readonly counts: () => DatabaseCounts;
  /** Calls that have not been answered yet. */
  readonly pending: () => number;
};

export async function startMeteredSqld(): Promise<MeteredSqld> {
  await using started = new AsyncDisposableStack();
  const folder = mkdtempSync(join(tmpdir(), "airlock-sqld-"));
  started.defer(() => rmSync(folder, { recursive: true }));
  const sqld = started.adopt(await startSqld(join(folder, "db")), (sqld) => sqld.close());
  const upstream = started.adopt(new Pool(sqld.url), (pool) => pool.destroy());
  let pending = 0;
  let counts: DatabaseCounts = { calls: 0, writes: 0, rowsRead: 0, rowsWritten: 0 };

  async function pass(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { method = "GET", url: path = "/", headers } = request;
    const { "content-type": type = "application/json" } = headers;
    pending += 1;
    try {
      const answer = await upstream.request({
        method,
        path,
        headers: { "content-type": type },
        ...(method === "POST" && { body: await buffer(request) }),
      });
      const body = await buffer(answer.body);
      counts = counted(counts, body.toString());
      response.writeHead(answer.statusCode, {
        "content-type": String(answer.headers["content-type"]),
      });
      response.end(body);
    } catch {
      response.destroy();
    } finally {
      pending -= 1;
    }
  }
  const server = createServer((request, response) => void pass(request, response));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  started.defer(async () => {
    server.close();
    server.closeAllConnections();
    await once(server, "close");
  });
  const all = started.move();
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    counts: () => counts,
    pending: () => pending,
    [Symbol.asyncDispose]: () => all.disposeAsync(),
  };
}

/** Adds an answer of the server. */
export function counted(before: DatabaseCounts, answer: string): DatabaseCounts {
  const written = sumOf(answer, "rows_written");
  return {
    calls: before.calls + 1,
    writes: before.writes + Number(written > 0),
    rowsRead: before.rowsRead + sumOf(answer, "rows_read"),
    rowsWritten: before.rowsWritten + written,
  };
}

function sumOf(text: string, field: string): number {
  const found = text.matchAll(new RegExp(`"${field}":(\\d+)`, "g"));
  return [...found].reduce((sum, [, digits]) => sum + Number(digits), 0);
}
