import { type FileHandle, open } from "node:fs/promises";
import { join, resolve } from "node:path";
import { setImmediate as nextTick, setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import {
  type Client,
  createClient,
  type InStatement,
  type InValue,
  LibsqlError,
  type ResultSet,
} from "@libsql/client";
import { drizzle } from "drizzle-orm/libsql";
import { migrate } from "drizzle-orm/libsql/migrator";
import { readMigrationFiles } from "drizzle-orm/migrator";
import Database from "libsql";
import { Agent, request } from "undici";
import { type Config, ConfigError } from "../../shared/config/config.ts";
import { describeError } from "../../shared/log-line.ts";
import { makeFolder } from "../../shared/process/files.node.ts";
import {
  type DurableClient,
  fileSettings,
  isStoreOutage,
  keptTables,
  type Read,
  remoteTimeoutMs,
} from "../store/database.ts";
import { isReadOnly, resultSet, rowPrototype, serverClient } from "./libsql-server.ts";

const migrationsFolder = fileURLToPath(new URL("../store/migrations", import.meta.url));

/** In a URL, %, ? and # of a folder's name would mean something else. */
const addressOf = ({ database_url, data_dir }: Config): string =>
  database_url ??
  `file:${resolve(data_dir, "airlock.db").replaceAll(/[%?#]/g, (sign) => encodeURIComponent(sign))}`;

/** The database's file; undefined if a server has it. */
export function databaseFile(config: Config): string | undefined {
  const url = addressOf(config);
  return url.startsWith("file:") ? pathOf(url) : undefined;
}

/** What may be on this host of code, input and output: data folder, database with its journals, artifacts. */
export function storedPaths(config: Config): string[] {
  const database = databaseFile(config);
  const ends = database === undefined ? [] : ["", "-wal", "-shm", "-used"];
  return [
    config.data_dir,
    ...ends.map((end) => database + end),
    join(config.data_dir, "artifacts"),
  ];
}

/**
 * Opens the configured database and brings its schema up to date.
 *
 * @throws ConfigError that names the folder or the database that cannot be used.
 */
export async function openDatabase(config: Config): Promise<Client> {
  const url = addressOf(config);
  const isFile = url.startsWith("file:");
  if (isFile) makeDataFolder(config.data_dir);
  try {
    if (isFile) return await migrated(fileClient(url));
    const { database_auth_token: token } = config;
    // Migrating a long history may take longer than the time limit of requests.
    const migrating = createClient({ url, ...(token !== undefined && { authToken: token }) });
    (await migrated(migrating)).close();
    const post = postByUndici(remoteTimeoutMs);
    return serverClient({ url, authToken: token, post, nextTick });
  } catch (cause) {
    const text = `cannot open the database ${url}: ${describeError(cause)}`;
    throw new ConfigError(withoutSecrets(text), { cause });
  }
}

/** Posts to a database's server, with less CPU time than `fetch` takes. The whole answer must come within `timeoutMs`. */
export function postByUndici(timeoutMs: number): Parameters<typeof serverClient>[0]["post"] {
  const dispatcher = new Agent({ allowH2: false });
  return async (url, headers, body) => {
    const signal = AbortSignal.timeout(timeoutMs);
    const answer = await request(url, { method: "POST", headers, body, signal, dispatcher });
    return { status: answer.statusCode, text: await answer.body.text() };
  };
}

/** Several processes may start at once: if another one has migrated, the second attempt finds nothing to do. */
async function migrated(client: Client): Promise<Client> {
  await refuseOtherVersion(client);
  const once = () => migrate(drizzle(client), { migrationsFolder });
  await once().catch(once);
  return client;
}

/** @throws Error when the schema has an unknown migration: of a newer version, or of a development version. */
async function refuseOtherVersion(client: Client): Promise<void> {
  const table = "__drizzle_migrations";
  const made = await client.execute(`SELECT 1 FROM sqlite_master WHERE name = '${table}'`);
  if (made.rows.length === 0) return;
  const { rows } = await client.execute(`SELECT hash FROM ${table}`);
  const known = new Set(readMigrationFiles({ migrationsFolder }).map(({ hash }) => hash));
  if (rows.every((row) => known.has(row["hash"] as string))) return;
  throw new Error(
    "another version of Airlock made it. Use that version (it can also back it up), " +
      "or begin anew with an empty database (AIRLOCK_DATA_DIR or AIRLOCK_DATABASE_URL)",
  );
}

function makeDataFolder(path: string): void {
  try {
    makeFolder(path);
  } catch (cause) {
    const reason = describeError(cause);
    throw new ConfigError(`cannot use the data folder ${path} (AIRLOCK_DATA_DIR): ${reason}`, {
      cause,
    });
  }
}

/** Removes user, password and token from an address. */
function withoutSecrets(text: string): string {
  return text.replaceAll(/\/\/[^/\s]*@/g, "//").replaceAll(/\?[^\s:]*/g, "");
}

/** Milliseconds that a statement blocks the thread while another process has the lock. */
const blockingMs = 10;
/** Milliseconds in total that a write waits for that lock; other work continues meanwhile. */
const lockTimeoutMs = 2000;

/**
 * A client of a local file, with one connection. Reads run at once, unless this tick of the event loop
 * has taken too long. Writes share commits and resolve when they are committed; `durable` resolves when
 * they are on disk. While a long write pauses, reads use a second connection, which sees what is committed.
 *
 * A statement that fails because the database is full stays open in the driver, and no later transaction
 * can commit. So the next call after such an error opens a new connection.
 */
export function fileClient(url: string, open = openConnection): DurableClient {
  const path = pathOf(url);
  let connection: Connection | undefined;
  let second: Connection | undefined;
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
    second?.close();
    connection = second = undefined;
    file.forget();
  };
  const atOnce = <T>(call: (open: Connection) => T): T => {
    try {
      const first = connected();
      if (!writes.isPaused) return call(first);
      return call((second ??= openPrepared(path, open)));
    } catch (error) {
      if (isStoreOutage(error)) disconnect();
      throw error;
    }
  };
  const inTurn = shortTicks();
  const committed = () => log.wrote();
  const writes = groupCommit({ connected, disconnect, committed, lockTimeoutMs });

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
    kept: <R>(read: Read<R>): Promise<R> => inTurn(() => atOnce((open) => open.kept(read))),
    batch: (statements: InStatement[]) => writes.add(statements),
    migrate: async (statements: InStatement[]) => {
      const results = atOnce((open) => migrateFile(open, statements));
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
function migrateFile(open: Connection, statements: InStatement[]): ResultSet[] {
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
function pathOf(url: string): string {
  const [, host = "", path = ""] = /^file:(?:\/\/([^/]*))?([^?#]*)/.exec(url) ?? [];
  if (host !== "" && host !== "localhost") {
    throw new LibsqlError(`a file URL names no host: ${host}`, "URL_INVALID");
  }
  return decodeURIComponent(path);
}

const defaultGroupMs = 10;
const brokenOff = "the connection was closed within a write";
/** Milliseconds of one statement after which a write pauses. */
const longMs = 3;
/** Milliseconds between two attempts to get a lock. */
const pauseMs = 20;

interface Write {
  statements: InStatement[];
  resolve: (results: ResultSet[]) => void;
  reject: (error: unknown) => void;
}

interface Source {
  /** Returns the connection, and opens it if there is none. */
  connected: () => Connection;
  /** Drops the connection with its open transaction. */
  disconnect: () => void;
  /** Called after each commit that changed something. */
  committed?: () => void;
  /** Milliseconds that a group waits while another process holds the lock. */
  lockTimeoutMs: number;
  /** Milliseconds after which a group is committed, which limits the length of a tick. */
  groupMs?: number;
}

/**
 * Commits the writes of one tick of the event loop in one transaction; a single statement is its own. Each write is
 * all or nothing. A write that SQLite refuses fails alone; if the database is locked, full or broken, all writes of the
 * transaction fail. Promises settle after the commit.
 */
export function groupCommit({
  connected,
  disconnect,
  committed,
  lockTimeoutMs,
  groupMs = defaultGroupMs,
}: Source) {
  let waiting: Write[] = [];
  let isCommitting = false;
  let isPaused = false;

  /** Lets other work of the event loop run while the transaction is open. */
  const pause = async (connection: Connection): Promise<void> => {
    isPaused = true;
    await nextTick();
    isPaused = false;
    if (!connection.inTransaction) throw new LibsqlError(brokenOff, "SQLITE_IOERR");
  };

  const commitAll = async (): Promise<void> => {
    isCommitting = true;
    for (await nextTick(); waiting.length > 0; await nextTick()) {
      try {
        const [first] = waiting;
        if (waiting.length === 1 && first!.statements.length === 1) settle([await runLone(first!)]);
        else settle((await commitSome()) ?? (await commitSome(true))!);
      } catch (error) {
        disconnect();
        for (const { reject } of waiting.splice(0)) reject(error);
      }
    }
    isCommitting = false;
  };

  /** Makes a call that takes the lock. While another process has it, other work continues. */
  const locking = async <T>(call: (connection: Connection) => T): Promise<T> => {
    const deadline = performance.now() + lockTimeoutMs;
    for (;;) {
      try {
        return call(connected());
      } catch (error) {
        const isLocked = error instanceof LibsqlError && error.code === "SQLITE_BUSY";
        if (!isLocked || performance.now() > deadline) throw error;
      }
      await sleep(pauseMs);
    }
  };

  /** Runs a single statement, which SQLite commits itself. */
  const runLone = async ({ statements }: Write): Promise<Outcome> => {
    const outcome = await locking((connection): Outcome => {
      try {
        return { results: statements.map((statement) => connection.run(statement)) };
      } catch (error) {
        if (isStoreOutage(error)) throw error;
        return { error };
      }
    });
    if (hasChanged(outcome)) committed?.();
    return outcome;
  };

  /**
   * Runs the writes that wait in the open transaction. Savepoints let one fail alone; they cost two statements for each
   * write, and writes seldom fail. So without `hasSavepoints` a failure of one undoes all, and nothing is returned.
   */
  const commitSome = async (hasSavepoints = false): Promise<Outcome[] | undefined> => {
    const connection = await locking(begin);
    const until = performance.now() + groupMs;
    const group = waiting.slice();
    const isAlone = group.length === 1;
    const outcomes: Outcome[] = [];
    for (const write of group) {
      if (performance.now() > until) break;
      // SQLite undoes a single failed statement itself.
      const needsSavepoint = write.statements.length > 1 && !isAlone;
      const steps = runOne(connection, write, isAlone, needsSavepoint && hasSavepoints);
      let step = steps.next();
      for (; !step.done; step = steps.next()) await pause(connection);
      const outcome = step.value;
      if ("error" in outcome && needsSavepoint && !hasSavepoints) {
        connection.run("ROLLBACK");
        return undefined;
      }
      outcomes.push(outcome);
    }
    if (connection.inTransaction) {
      connection.run("COMMIT");
      if (outcomes.some(hasChanged)) committed?.();
    }
    return outcomes;
  };

  /** Answers the first of the writes that wait. */
  const settle = (outcomes: Outcome[]): void => {
    for (const [at, { resolve, reject }] of waiting.splice(0, outcomes.length).entries()) {
      const outcome = outcomes[at]!;
      if ("error" in outcome) reject(outcome.error);
      else resolve(outcome.results);
    }
  };

  return {
    /** Runs statements in one transaction, all of them or none. */
    add(statements: InStatement[]): Promise<ResultSet[]> {
      return new Promise((resolve, reject) => {
        waiting.push({ statements, resolve, reject });
        if (!isCommitting) void commitAll();
      });
    },
    /** Whether the connection is within a transaction whose changes nobody may see yet. */
    get isPaused() {
      return isPaused;
    },
  };
}

function begin(connection: Connection): Connection {
  connection.run("BEGIN IMMEDIATE");
  return connection;
}

type Outcome = { results: ResultSet[] } | { error: unknown };

function hasChanged(outcome: Outcome): boolean {
  return "results" in outcome && outcome.results.some(({ rowsAffected }) => rowsAffected > 0);
}

/**
 * Runs one write inside the open transaction; if it `isAlone` there and fails, the transaction is over.
 * After each statement that has taken long it yields, for a pause.
 */
function* runOne(
  connection: Connection,
  { statements }: Write,
  isAlone: boolean,
  hasSavepoint: boolean,
): Generator<void, Outcome> {
  try {
    if (hasSavepoint) connection.run("SAVEPOINT one");
    const results: ResultSet[] = [];
    for (const statement of statements) {
      const began = performance.now();
      results.push(connection.run(statement));
      if (performance.now() - began > longMs) yield;
    }
    if (hasSavepoint) connection.run("RELEASE one");
    return { results };
  } catch (error) {
    if (isStoreOutage(error) || !connection.inTransaction) throw error;
    if (isAlone) connection.run("ROLLBACK");
    else if (hasSavepoint) {
      connection.run("ROLLBACK TO one");
      connection.run("RELEASE one");
    }
    return { error };
  }
}

/** Most prepared statements in the cache. Lists of ids of different lengths give many texts. */
const maxPrepared = 500;

/** One connection to a local file; everything on it is synchronous. */
export interface Connection {
  /**
   * The rows that a write returns are those that it affected.
   *
   * @throws LibsqlError with SQLite's base code, for example SQLITE_BUSY.
   */
  run(statement: InStatement): ResultSet;
  /** See KeepRead. */
  kept<R>(read: Read<R>): R;
  readonly inTransaction: boolean;
  close(): void;
}

/** Opens a file. A statement blocks for `timeoutMs` at most while another process has the lock. */
export function openConnection(path: string, timeoutMs: number): Connection {
  const database = translated(() => new Database(path, { timeout: timeoutMs }));
  const prepared = new Map<string, Prepared>();
  const kept = new Map<string, { readonly mark: string; readonly value: unknown }>();
  /** How often this connection has written to each of `keptTables`. */
  const written = new Map<string, number>();
  let version: unknown;

  const prepareOnce = (sql: string): Prepared => {
    const known = prepared.get(sql);
    if (known) return known;
    const made = prepare(database, sql);
    if (prepared.size >= maxPrepared) prepared.clear();
    prepared.set(sql, made);
    return made;
  };

  const run: Connection["run"] = (statement) => {
    const { sql, args = [] } = typeof statement === "string" ? { sql: statement } : statement;
    return translated(() => {
      const known = prepareOnce(sql);
      for (const table of known.changes) written.set(table, (written.get(table) ?? 0) + 1);
      return known.run(toValues(args));
    });
  };
  /** Changes with each commit of another connection. One look serves until the event loop goes on. */
  const versionNow = (): unknown => {
    if (version === undefined) {
      version = run("PRAGMA data_version").rows[0]![0];
      process.nextTick(() => (version = undefined));
    }
    return version;
  };

  return {
    run,
    kept<R>({ statement, tables, decode, key: given }: Read<R>) {
      const key = given ?? `${statement.sql} ${JSON.stringify(statement.args)}`;
      const mark = `${String(versionNow())} ${tables.map((table) => written.get(table)).join()}`;
      const known = kept.get(key);
      if (known?.mark === mark) return known.value as R;
      const value = decode(run(statement));
      if (kept.size >= maxPrepared) kept.clear();
      kept.set(key, { mark, value });
      return value;
    },
    get inTransaction() {
      return database.open && database.inTransaction;
    },
    close() {
      prepared.clear();
      if (!database.open) return;
      // A statement left to the garbage collector would keep the transaction open.
      if (database.inTransaction) database.exec("ROLLBACK");
      database.close();
    },
  };
}

const changed =
  /\b(?:insert\s+(?:or\s+\w+\s+)?into|replace\s+into|update(?:\s+or\s+\w+)?|delete\s+from|table)\s+["`]?(\w+)/gi;

/** Which of `keptTables` a statement changes. */
function changedBy(sql: string): string[] {
  if (isReadOnly(sql)) return [];
  const names = [...sql.matchAll(changed)].map(([, name]) => name!);
  return keptTables.filter((table) => names.includes(table));
}

interface Prepared {
  /** Which of `keptTables` it changes. */
  changes: string[];
  run(args: DriverValue[]): ResultSet;
}
type DriverValue = null | string | number | bigint | Uint8Array;

function prepare(database: Database.Database, sql: string): Prepared {
  const statement = database.prepare<[DriverValue[]]>(sql);
  if (!statement.reader) {
    return {
      changes: changedBy(sql),
      run(args) {
        const { changes, lastInsertRowid } = statement.run(args);
        return resultSet([], [], [], changes, BigInt(lastInsertRowid));
      },
    };
  }
  statement.raw(true);
  const described = statement.columns();
  const columns = described.map(({ name }) => name);
  const types = described.map(({ type }) => type ?? "");
  const prototype = rowPrototype(columns);
  const isRead = isReadOnly(sql);
  return {
    changes: changedBy(sql),
    run(args) {
      // Never `get`: after a call of `all`, or one that failed, it uses the bindings of that call.
      const rows = statement.all(args) as unknown[][];
      for (const row of rows) {
        for (let i = 0; i < row.length; i++) {
          if (row[i] instanceof Uint8Array) row[i] = bufferOf(row[i] as Uint8Array);
        }
        Object.setPrototypeOf(row, prototype);
      }
      const affected = isRead ? 0 : rows.length;
      return resultSet(columns, types, rows, affected, undefined);
    },
  };
}

function bufferOf(bytes: Uint8Array): ArrayBufferLike {
  const isWhole = bytes.byteLength === bytes.buffer.byteLength;
  return isWhole ? bytes.buffer : bytes.slice().buffer;
}

function toValues(args: NonNullable<Exclude<InStatement, string>["args"]>): DriverValue[] {
  if (!Array.isArray(args)) throw new TypeError("arguments are given by position");
  return args.map(toValue);
}

/** Converts values for the driver, which ends the process on an unknown type. */
function toValue(value: InValue): DriverValue {
  if (value === null || typeof value === "string" || typeof value === "bigint") return value;
  if (typeof value === "number" && Number.isFinite(value)) return value;
  if (typeof value === "boolean") return value ? 1 : 0;
  if (value instanceof Uint8Array) return value;
  if (value instanceof ArrayBuffer) return new Uint8Array(value);
  throw new TypeError(`not a value for the database: ${String(value)}`);
}

function translated<T>(call: () => T): T {
  try {
    return call();
  } catch (error) {
    if (!(error instanceof Database.SqliteError)) throw error;
    const { message, code, rawCode } = error as Error & { code: string; rawCode?: number };
    const base = /^SQLITE_[A-Z]+/.exec(code)?.[0] ?? code;
    throw new LibsqlError(message, base, code, rawCode, error);
  }
}

/** Milliseconds after which a commit is written to disk even if nobody waits for it. */
const idleMs = 100;

/**
 * Writes commits to disk, many with one `sync` of the log. The log has them in order, so the commits on
 * disk are all commits up to one of them. SQLite's own sync would block the event loop at each commit.
 */
export function walSync(sync: () => Promise<void>) {
  const counts = { committed: 0, onDisk: 0 };
  let syncing: Promise<void> | undefined;
  let idle: NodeJS.Timeout | undefined;

  const syncAll = async (): Promise<void> => {
    const upTo = counts.committed;
    clearTimeout(idle);
    idle = undefined;
    await sync();
    counts.onDisk = upTo;
  };

  /** Resolves when every commit before this call is on disk. */
  const synced = async (): Promise<void> => {
    const upTo = counts.committed;
    while (counts.onDisk < upTo) {
      await (syncing ??= syncAll().finally(() => (syncing = undefined)));
    }
  };

  return {
    synced,
    /** Counts a commit. */
    wrote(): void {
      counts.committed += 1;
      idle ??= setTimeout(() => void synced().catch(() => {}), idleMs).unref();
    },
  };
}

/** The write-ahead log of a database; `sync` runs on another thread. */
export function walFile(databasePath: string) {
  let file: Promise<FileHandle> | undefined;

  function forget(): void {
    file?.then((opened) => opened.close()).catch(() => {});
    file = undefined;
  }

  return {
    /** @throws LibsqlError SQLITE_IOERR. */
    async sync(): Promise<void> {
      try {
        file ??= open(`${databasePath}-wal`);
        await (await file).datasync();
      } catch (error) {
        forget();
        const { code } = error as NodeJS.ErrnoException;
        // The last connection that closes copies the log into the database and removes the log.
        if (code === "ENOENT") return;
        const text = `the last writes may not be on disk: ${code}`;
        throw new LibsqlError(text, "SQLITE_IOERR", undefined, undefined, error as Error);
      }
    },
    /** Closes the file, since the next connection may make a new one. A running sync ends first. */
    forget,
  };
}

const limitMs = 10;

/**
 * Keeps ticks of the event loop short. Reads of a local file are synchronous, so without a pause all
 * requests that arrived together would be served in one tick. The returned function makes a read in this tick if the
 * tick has taken less than `limitMs` and no earlier read waits, else in a later tick. Reads run in the order in which
 * they were asked for: a reader of many pieces waits behind all others for each piece.
 */
function shortTicks(): <T>(read: () => T) => Promise<T> {
  let beganMs: number | undefined;
  const tickMs = (): number => {
    if (beganMs === undefined) {
      beganMs = performance.now();
      setImmediate(() => (beganMs = undefined));
    }
    return performance.now() - beganMs;
  };
  let waiting: (() => void)[] = [];
  const serve = async (): Promise<void> => {
    while (waiting.length > 0) {
      await nextTick();
      let served = 0;
      while (served < waiting.length && tickMs() <= limitMs) waiting[served++]!();
      waiting = waiting.slice(served);
    }
  };
  return async (read) => {
    if (waiting.length === 0 && tickMs() <= limitMs) return read();
    return new Promise((resolve, reject) => {
      const take = (): void => {
        try {
          resolve(read());
        } catch (error) {
          reject(error);
        }
      };
      if (waiting.push(take) === 1) void serve();
    });
  };
}
