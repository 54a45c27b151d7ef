import { setImmediate as nextTick, setTimeout as sleep } from "node:timers/promises";
import { LibsqlError, type InStatement, type ResultSet } from "@libsql/client";
import { isStoreOutage } from "../../store/outage.ts";
import type { Connection } from "./sqlite-connection.node.ts";

const defaultGroupMs = 10;
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

  const commitAll = async (): Promise<void> => {
    isCommitting = true;
    for (await nextTick(); waiting.length > 0; await nextTick()) {
      try {
        const [first] = waiting;
        if (waiting.length === 1 && first!.statements.length === 1) settle([await runLone(first!)]);
        else settle(commitSome(await locking(begin)));
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

  const commitSome = (connection: Connection): Outcome[] => {
    const until = performance.now() + groupMs;
    const isAlone = waiting.length === 1;
    const outcomes: Outcome[] = [];
    while (outcomes.length < waiting.length && performance.now() < until) {
      outcomes.push(runOne(connection, waiting[outcomes.length]!, isAlone));
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

/** Runs one write inside the open transaction; if it `isAlone` there and fails, the transaction is over. */
function runOne(connection: Connection, { statements }: Write, isAlone: boolean): Outcome {
  // SQLite undoes a single failed statement itself.
  const needsSavepoint = statements.length > 1 && !isAlone;
  try {
    if (needsSavepoint) connection.run("SAVEPOINT one");
    const results = statements.map((statement) => connection.run(statement));
    if (needsSavepoint) connection.run("RELEASE one");
    return { results };
  } catch (error) {
    if (isStoreOutage(error) || !connection.inTransaction) throw error;
    if (isAlone) connection.run("ROLLBACK");
    else if (needsSavepoint) {
      connection.run("ROLLBACK TO one");
      connection.run("RELEASE one");
    }
    return { error };
  }
}
