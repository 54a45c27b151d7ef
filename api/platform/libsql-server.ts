import {
  LibsqlError,
  type Client,
  type InStatement,
  type InValue,
  type ResultSet,
} from "@libsql/client/web";
import { base64, fromBase64 } from "../../shared/bytes.ts";
import { describeError } from "../../shared/log-line.ts";

/**
 * The client of a libSQL server, with the promises of the file's client: each write is all or nothing, one that SQLite
 * refuses fails alone, and all writes of a request that gets no answer fail with an unknown outcome.
 *
 * Each request opens a connection at the server, which costs it more than most statements. So what is asked for while a
 * request is under way shares the next one. Source of the protocol:
 * https://github.com/tursodatabase/libsql/tree/main/docs (Hrana 3)
 */
export function serverClient(server: Server): Client {
  const send = sender(server);
  const make = (): Lanes => newLanes(send, server.nextTick);
  const ownLanes = make();
  let isClosed = false;
  const ask = async (statements: InStatement[]): Promise<ResultSet[]> => {
    if (isClosed) throw new LibsqlError("The client is closed", "CLIENT_CLOSED");
    if (statements.length === 0) return [];
    const isRead = statements.every((each) => isReadOnly(sqlOf(each)));
    return (server.lanes?.(make) ?? ownLanes)[isRead ? "read" : "write"](statements);
  };
  const client = {
    protocol: "http",
    get closed() {
      return isClosed;
    },
    execute: async (statement: InStatement) => (await ask([statement]))[0]!,
    batch: ask,
    close: () => void (isClosed = true),
  };
  // The rest of the interface is missing: drizzle and the store call only the methods above.
  return client as Partial<Client> as Client;
}

interface Server {
  /** `http(s)://`, or `libsql://` for https unless it says `?tls=0`. */
  url: string;
  authToken?: string | undefined;
  /** Sends a body, and returns the whole answer. */
  post: (url: string, headers: Record<string, string>, body: string) => Promise<Answer>;
  /** Resolves in the next tick of the event loop; calls until then share a request. */
  nextTick: () => Promise<unknown>;
  /** Where what is asked for now may wait for others; all calls of the process share lanes without it. */
  lanes?: (make: () => Lanes) => Lanes;
}

interface Answer {
  status: number;
  text: string;
}

/** `post` of a platform that has nothing cheaper than `fetch`; the whole answer must come within `timeoutMs`. */
export function postByFetch(timeoutMs: number): Server["post"] {
  return async (url, headers, body) => {
    const signal = AbortSignal.timeout(timeoutMs);
    const answer = await fetch(url, { method: "POST", headers, body, signal });
    return { status: answer.status, text: await answer.text() };
  };
}

/** One request of reads and one of writes are under way at once. */
export interface Lanes {
  read: Lane;
  write: Lane;
}
type Lane = (statements: InStatement[]) => Promise<ResultSet[]>;

function newLanes(send: Send, nextTick: Server["nextTick"]): Lanes {
  return {
    read: inTurns(nextTick, (calls) => runReads(send, calls)),
    write: inTurns(nextTick, (calls) => runWrites(send, calls)),
  };
}

interface Call {
  statements: Stmt[];
  bytes: number;
  resolve: (results: ResultSet[]) => void;
  reject: (error: unknown) => void;
}

/** Most calls of one request. */
const maxCalls = 128;
/** A larger call goes alone. */
const maxBytes = 4 * 1024 * 1024;
/** The server's other clients wait for its one writer: a request that took longer makes the next ones smaller. */
const longMs = 500;

/** Calls `run` with what was asked for while it ran before. It settles each call. */
function inTurns(nextTick: Server["nextTick"], run: (calls: Call[]) => Promise<void>): Lane {
  let waiting: Call[] = [];
  let isRunning = false;
  let mostCalls = maxCalls;

  const take = (): Call[] => {
    let bytes = 0;
    const isOver = (call: Call, at: number): boolean =>
      at > 0 && (at >= mostCalls || (bytes += call.bytes) > maxBytes);
    bytes = waiting[0]!.bytes;
    const end = waiting.findIndex(isOver);
    const taken = end < 0 ? waiting : waiting.slice(0, end);
    waiting = waiting.slice(taken.length);
    return taken;
  };
  const runAll = async (): Promise<void> => {
    isRunning = true;
    for (await nextTick(); waiting.length > 0; await nextTick()) {
      const calls = take();
      const beganAt = performance.now();
      await run(calls).catch((error: unknown) => {
        for (const { reject } of calls) reject(error);
      });
      const isLong = performance.now() - beganAt > longMs;
      mostCalls = isLong ? Math.ceil(calls.length / 2) : Math.min(maxCalls, mostCalls * 2);
    }
    isRunning = false;
  };
  return async (statements) => {
    const stmts = statements.map(encode);
    const bytes = stmts.reduce((sum, stmt) => sum + bytesOf(stmt), 0);
    return new Promise((resolve, reject) => {
      waiting.push({ statements: stmts, bytes, resolve, reject });
      if (!isRunning) void runAll();
    });
  };
}

/** Each call of several statements sees one state of the database. */
async function runReads(send: Send, calls: Call[]): Promise<void> {
  const answers = await send(
    calls.map(({ statements: [first, ...more] }) => {
      if (more.length === 0) return { type: "execute", stmt: first! };
      const all = [plain("BEGIN READONLY"), first!, ...more, plain("COMMIT")];
      return { type: "batch", batch: { steps: all.map((stmt) => ({ stmt })) } };
    }),
  );
  for (const [at, { statements, resolve, reject }] of calls.entries()) {
    const answer = answers[at]!;
    const found = answer.type === "ok" ? answer.response.result : undefined;
    const isBatch = found && "step_errors" in found;
    const error =
      answer.type === "error" ? answer.error : isBatch && found.step_errors.find(Boolean);
    if (error) reject(errorOf(error));
    else {
      const results = isBatch ? found.step_results.slice(1, 1 + statements.length) : [found!];
      settle(() => resolve(results.map((each) => decode(each as StmtResult))), reject);
    }
  }
}

/** Milliseconds in total that calls wait for a server whose database is locked, or that has too much to do. */
const busyTimeoutMs = 2000;
const pauseMs = 20;

/** Runs writes in one transaction. If SQLite refuses the commit, it refuses all of them. */
async function runWrites(send: Send, writes: Call[]): Promise<void> {
  const { steps, places, first, last } = planWrites(writes);
  const giveUpAt = performance.now() + busyTimeoutMs;
  let done: BatchResult;
  for (;;) {
    const [answer] = await send([{ type: "batch", batch: { steps } }]);
    if (answer!.type === "error") {
      // A statement that cannot be parsed: nothing has run.
      if (!answer!.error.code?.startsWith("SQL_") || writes.length === 1) {
        throw errorOf(answer!.error);
      }
      for (const write of writes) await runWrites(send, [write]).catch(write.reject);
      return;
    }
    done = answer!.response.result as BatchResult;
    const isLocked = done.step_errors[first]?.code?.startsWith("SQLITE_BUSY") === true;
    if (!isLocked || performance.now() > giveUpAt) break;
    await pause(pauseMs);
  }
  const isCommitted = done.step_results[last] !== null;
  // What ended the transaction is the last error: no later step has run.
  const reason = done.step_errors[last] ??
    done.step_errors.findLast(Boolean) ?? { message: "not committed", code: "SERVER_ERROR" };
  for (const [at, { resolve, reject }] of writes.entries()) {
    const own = places[at]!;
    const refusal = own.map((place) => done.step_errors[place]).find(Boolean);
    if (refusal) reject(errorOf(refusal));
    else if (!isCommitted) reject(errorOf(reason));
    else {
      const results = own.map((place) => done.step_results[place]!);
      settle(() => resolve(results.map((each) => decode(each))), reject);
    }
  }
}

/** The steps of a transaction; `places` has those of each write, `first` takes the lock and `last` commits. */
function planWrites(writes: Call[]) {
  const steps: Step[] = [];
  const add = (stmt: Stmt, ...conds: Condition[]): number =>
    steps.push({ stmt, condition: { type: "and", conds } }) - 1;
  // After some errors, SQLite has ended the transaction: what followed would be committed by itself.
  const isOpen = not({ type: "is_autocommit" });

  const [{ statements: alone }] = writes as [Call];
  if (writes.length === 1 && alone.length === 1) {
    const only = add(alone[0]!);
    return { steps, places: [[only]], first: only, last: only };
  }
  const first = add(plain("BEGIN IMMEDIATE"));
  const places = writes.map(({ statements }) => {
    // SQLite undoes a single failed statement itself.
    if (statements.length === 1) return [add(statements[0]!, ok(first), isOpen)];
    const savepoint = add(plain("SAVEPOINT one"), ok(first), isOpen);
    const own: number[] = [];
    for (const stmt of statements) own.push(add(stmt, ok(own.at(-1) ?? savepoint), isOpen));
    const release = add(plain("RELEASE one"), ok(own.at(-1) ?? savepoint), isOpen);
    const undone = add(plain("ROLLBACK TO one"), ok(savepoint), not(ok(release)), isOpen);
    add(plain("RELEASE one"), ok(undone));
    return own;
  });
  const last = add(plain("COMMIT"), ok(first), isOpen);
  add(plain("ROLLBACK"), ok(first), not(ok(last)), isOpen);
  return { steps, places, first, last };
}

const ok = (step: number): Condition => ({ type: "ok", step });
const not = (cond: Condition): Condition => ({ type: "not", cond });
const plain = (sql: string): Stmt => ({ sql });

type Send = (requests: StreamRequest[]) => Promise<StreamAnswer[]>;

/** Sends requests that share a connection of the server for as long as they take. */
function sender({ url, authToken, post }: Server): Send {
  const { endpoint, token = authToken } = endpointOf(url);
  const headers = {
    "content-type": "application/json",
    // Compressed answers cost both sides CPU time.
    "accept-encoding": "identity",
    ...(token !== undefined && { authorization: `Bearer ${token}` }),
  };
  /** @throws LibsqlError if no whole answer came: then nobody knows what the server has done. */
  const ask = async (body: string): Promise<Answer & { results?: StreamAnswer[] }> => {
    try {
      const answer = await post(endpoint, headers, body);
      if (answer.status !== 200) return answer;
      return { ...answer, ...(JSON.parse(answer.text) as { results: StreamAnswer[] }) };
    } catch (cause) {
      const said = `no answer of the database's server: ${describeError(cause)}`;
      throw new LibsqlError(said, "SERVER_ERROR", undefined, undefined, cause as Error);
    }
  };
  return async (requests) => {
    const body = JSON.stringify({ requests: [...requests, { type: "close" }] });
    const giveUpAt = performance.now() + busyTimeoutMs;
    for (;;) {
      const { status, text, results } = await ask(body);
      if (results?.length === requests.length + 1) return results;
      // The server has done nothing.
      const isBusy = status === 429;
      if (!isBusy || performance.now() > giveUpAt) {
        const said = `the database's server: status ${status} ${text}`;
        throw new LibsqlError(said.trim(), "SERVER_ERROR");
      }
      await pause(pauseMs);
    }
  };
}

function endpointOf(url: string): { endpoint: string; token?: string } {
  const { protocol, host, pathname, searchParams } = new URL(url);
  const isPlain = /^(http|ws):$/.test(protocol) || searchParams.get("tls") === "0";
  const token = searchParams.get("authToken");
  const endpoint = `${isPlain ? "http" : "https"}://${host}${pathname.replace(/\/?$/, "/")}v3/pipeline`;
  return { endpoint, ...(token !== null && { token }) };
}

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** What an answer cannot be decoded to is told to its own caller. */
function settle(resolve: () => void, reject: (error: unknown) => void): void {
  try {
    resolve();
  } catch (error) {
    reject(error);
  }
}

type Value =
  | { type: "null" }
  | { type: "integer" | "text"; value: string }
  | { type: "float"; value: number }
  | { type: "blob"; base64: string };
interface Stmt {
  sql: string;
  args?: Value[];
}
type Condition =
  | { type: "ok"; step: number }
  | { type: "not"; cond: Condition }
  | { type: "and"; conds: Condition[] }
  | { type: "is_autocommit" };
interface Step {
  stmt: Stmt;
  condition?: Condition;
}
type StreamRequest = { type: "execute"; stmt: Stmt } | { type: "batch"; batch: { steps: Step[] } };
interface Failure {
  message: string;
  code?: string;
}
interface StmtResult {
  cols: { name: string | null; decltype?: string | null }[];
  rows: Value[][];
  affected_row_count: number;
  last_insert_rowid: string | null;
}
interface BatchResult {
  step_results: (StmtResult | null)[];
  step_errors: (Failure | null)[];
}
type StreamAnswer =
  | { type: "ok"; response: { result: StmtResult | BatchResult } }
  | { type: "error"; error: Failure };

const errorOf = ({ message, code = "UNKNOWN" }: Failure): LibsqlError =>
  new LibsqlError(message, code);

function encode(statement: InStatement): Stmt {
  const { sql, args = [] } = typeof statement === "string" ? { sql: statement } : statement;
  if (!Array.isArray(args)) throw new TypeError("arguments are given by position");
  return { sql, args: args.map(toValue) };
}

/** Numbers are floats, as in a file; columns make them integers. */
function toValue(value: InValue): Value {
  if (value === null) return { type: "null" };
  if (typeof value === "string") return { type: "text", value };
  if (typeof value === "bigint") return { type: "integer", value: String(value) };
  if (typeof value === "number" && Number.isFinite(value)) return { type: "float", value };
  if (typeof value === "boolean") return { type: "integer", value: value ? "1" : "0" };
  if (value instanceof Uint8Array) return { type: "blob", base64: base64(value) };
  if (value instanceof ArrayBuffer) return { type: "blob", base64: base64(new Uint8Array(value)) };
  throw new TypeError(`not a value for the database: ${String(value)}`);
}

function bytesOf({ sql, args = [] }: Stmt): number {
  return args.reduce((sum, value) => sum + sizeOf(value), sql.length);
}

function sizeOf(value: Value): number {
  if (value.type === "blob") return value.base64.length;
  return value.type === "text" ? value.value.length : 0;
}

function decode(result: StmtResult): ResultSet {
  const { cols, rows, affected_row_count: affected, last_insert_rowid: id } = result;
  const columns = cols.map(({ name }) => name ?? "");
  const prototype = rowPrototype(columns);
  const made = rows.map((row) => Object.setPrototypeOf(row.map(fromValue), prototype) as unknown[]);
  const types = cols.map(({ decltype }) => decltype ?? "");
  const rowid = id === null ? undefined : BigInt(id);
  return resultSet(columns, types, made, affected, rowid);
}

function fromValue(value: Value): unknown {
  if (value.type === "null") return null;
  if (value.type === "blob") return fromBase64(value.base64).buffer;
  if (value.type !== "integer") return value.value;
  const number = Number(value.value);
  if (!Number.isSafeInteger(number)) throw new RangeError(`not a safe integer: ${value.value}`);
  return number;
}

/** To make one costs more than to decode a row. */
const prototypes = new Map<string, object>();
const maxPrototypes = 500;

/** Makes rows that are arrays and also have their values by column name. */
export function rowPrototype(columns: string[]): object {
  const names = columns.join("\0");
  const known = prototypes.get(names);
  if (known) return known;
  const prototype = Object.create(Array.prototype) as object;
  if (prototypes.size >= maxPrototypes) prototypes.clear();
  prototypes.set(names, prototype);
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

export function resultSet(
  columns: string[],
  columnTypes: string[],
  rows: unknown[][],
  rowsAffected: number,
  lastInsertRowid: bigint | undefined,
): ResultSet {
  const set = {
    columns,
    columnTypes,
    rows: rows as unknown as ResultSet["rows"],
    rowsAffected,
    lastInsertRowid,
  };
  return { ...set, toJSON: () => ({ ...set, lastInsertRowid: lastInsertRowid?.toString() }) };
}

const reads = /^\s*(SELECT|PRAGMA|EXPLAIN)\b/i;
/** `WITH` may begin a read or a write: it writes if it has one of the words below. */
const startsWithTables = /^\s*WITH\b/i;
const writes = /\b(INSERT|UPDATE|DELETE|REPLACE)\b/i;

export function isReadOnly(sql: string): boolean {
  return reads.test(sql) || (startsWithTables.test(sql) && !writes.test(sql));
}

const sqlOf = (statement: InStatement): string =>
  typeof statement === "string" ? statement : statement.sql;
