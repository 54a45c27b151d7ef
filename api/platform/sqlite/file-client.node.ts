import { LibsqlError, type InStatement, type ResultSet } from "@libsql/client";
import { fileSettings, type DurableClient } from "../../store/database.ts";
import { isStoreOutage } from "../../store/outage.ts";
import { groupCommit } from "./group-commit.node.ts";
import { shortTicks } from "./short-ticks.node.ts";
import { isReadOnly, openConnection, type Connection } from "./sqlite-connection.node.ts";
import { walFile, walSync } from "./wal-sync.node.ts";

/** Milliseconds that a statement blocks the thread while another process has the lock. */
const blockingMs = 10;
/** Milliseconds in total that a write waits for that lock; other work continues meanwhile. */
const lockTimeoutMs = 2000;

/**
 * A client of a local file, with one connection. Reads run at once, unless this tick of the event loop
 * has taken too long. Writes share commits and resolve when they are committed; `durable` resolves when
 * they are on disk.
 *
 * A statement that fails because the database is full stays open in the driver, and no later transaction
 * can commit. So the next call after such an error opens a new connection.
 */
export function fileClient(url: string, open = openConnection): DurableClient {
  const path = pathOf(url);
  let connection: Connection | undefined;
  let isClosed = false;
  const file = walFile(path);
  // After close, nothing needs a sync: closing the last connection brings everything into the database, on disk.
  const log = walSync(async () => (isClosed ? undefined : file.sync()));

  const connected = (): Connection => {
    if (isClosed) throw new LibsqlError("The client is closed", "CLIENT_CLOSED");
    return (connection ??= openPrepared(path, open));
  };
  const disconnect = (): void => {
    connection?.close();
    connection = undefined;
    file.forget();
  };
  const atOnce = <T>(call: (open: Connection) => T): T => {
    try {
      return call(connected());
    } catch (error) {
      if (isStoreOutage(error)) disconnect();
      throw error;
    }
  };
  const inTurn = shortTicks();
  const writes = groupCommit({
    connected,
    disconnect,
    committed: () => log.wrote(),
    lockTimeoutMs,
  });

  const execute = async (statement: InStatement): Promise<ResultSet> => {
    const text = typeof statement === "string" ? statement : statement.sql;
    if (isReadOnly(text)) return inTurn(() => atOnce((open) => open.run(statement)));
    const [result] = await writes.add([statement]);
    return result!;
  };
  const client = {
    protocol: "file",
    get closed() {
      return isClosed;
    },
    execute,
    batch: (statements: InStatement[]) => writes.add(statements),
    migrate: async (statements: InStatement[]) => {
      const results = atOnce((open) => migrate(open, statements));
      log.wrote();
      return results;
    },
    durable: async () => {
      try {
        await log.synced();
      } catch (error) {
        disconnect();
        throw error;
      }
    },
    close() {
      disconnect();
      isClosed = true;
    },
  };
  // The rest of the interface is missing: drizzle and the store call only the methods above.
  return client as Partial<DurableClient> as DurableClient;
}

function openPrepared(path: string, open: typeof openConnection): Connection {
  const connection = open(path, blockingMs);
  try {
    for (const setting of fileSettings) connection.run(setting);
    return connection;
  } catch (error) {
    connection.close();
    throw error;
  }
}

/** Runs statements that change the schema in one transaction: all or none. */
function migrate(open: Connection, statements: InStatement[]): ResultSet[] {
  open.run("PRAGMA foreign_keys = OFF");
  try {
    open.run("BEGIN IMMEDIATE");
    const results = statements.map((statement) => open.run(statement));
    open.run("COMMIT");
    return results;
  } finally {
    if (open.inTransaction) open.run("ROLLBACK");
    open.run("PRAGMA foreign_keys = ON");
  }
}

/** The path of a `file:` URL, relative or absolute. */
export function pathOf(url: string): string {
  const [, host = "", path = ""] = /^file:(?:\/\/([^/]*))?([^?#]*)/.exec(url) ?? [];
  if (host !== "" && host !== "localhost") {
    throw new LibsqlError(`a file URL names no host: ${host}`, "URL_INVALID");
  }
  return decodeURIComponent(path);
}
