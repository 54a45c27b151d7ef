import { LibsqlError, type InStatement, type InValue, type ResultSet } from "@libsql/client";
import Database from "libsql";

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
  readonly inTransaction: boolean;
  close(): void;
}

/** Opens a file. A statement blocks for `timeoutMs` at most while another process has the lock. */
export function openConnection(path: string, timeoutMs: number): Connection {
  const database = translated(() => new Database(path, { timeout: timeoutMs }));
  const prepared = new Map<string, Prepared>();

  const prepareOnce = (sql: string): Prepared => {
    const known = prepared.get(sql);
    if (known) return known;
    const made = prepare(database, sql);
    if (prepared.size >= maxPrepared) prepared.clear();
    prepared.set(sql, made);
    return made;
  };

  return {
    run(statement) {
      const { sql, args = [] } = typeof statement === "string" ? { sql: statement } : statement;
      return translated(() => prepareOnce(sql).run(toValues(args)));
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

const reads = /^\s*(SELECT|PRAGMA|EXPLAIN)\b/i;
/** `WITH` may begin a read or a write: it writes if it has one of the words below. */
const startsWithTables = /^\s*WITH\b/i;
const writes = /\b(INSERT|UPDATE|DELETE|REPLACE)\b/i;

export function isReadOnly(sql: string): boolean {
  return reads.test(sql) || (startsWithTables.test(sql) && !writes.test(sql));
}

interface Prepared {
  run(args: DriverValue[]): ResultSet;
}
type DriverValue = null | string | number | bigint | Uint8Array;

function prepare(database: Database.Database, sql: string): Prepared {
  const statement = database.prepare<[DriverValue[]]>(sql);
  if (!statement.reader) {
    return {
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
      return resultSet(columns, types, rows as unknown as ResultSet["rows"], affected, undefined);
    },
  };
}

/** Makes rows that are arrays and also have their values by column name. */
function rowPrototype(columns: string[]): object {
  const prototype = Object.create(Array.prototype) as object;
  columns.forEach((name, index) => {
    if (name in prototype) return;
    Object.defineProperty(prototype, name, {
      get(this: unknown[]) {
        return this[index];
      },
    });
  });
  return prototype;
}

function resultSet(
  columns: string[],
  columnTypes: string[],
  rows: ResultSet["rows"],
  rowsAffected: number,
  lastInsertRowid: bigint | undefined,
): ResultSet {
  const set = { columns, columnTypes, rows, rowsAffected, lastInsertRowid };
  return { ...set, toJSON: () => ({ ...set, lastInsertRowid: lastInsertRowid?.toString() }) };
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
