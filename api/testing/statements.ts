import { type Client, createClient, type InStatement } from "@libsql/client";
import { afterEach, beforeEach } from "vitest";
import { database, type Database, type DurableClient } from "../store/database.ts";
import { tellStatements } from "./tell-statements.ts";
import { openTempStore } from "./temp-store.ts";

/** A store that tells the plans of its statements. */
export interface Planner {
  db: Database;
  /** The steps of the plans of all statements that `run` sends. */
  plansOf: (run: () => Promise<unknown>) => Promise<string[]>;
  /** The steps of the plan of a statement. */
  explain: (statement: InStatement) => Promise<string[]>;
  close: () => void;
}

export async function openPlanner(): Promise<Planner> {
  const store = await openTempStore();
  // EXPLAIN leaves a statement open on its connection, so it has its own connection.
  const explainer = createClient({ url: `file:${store.folder}/airlock.db` });
  const sent: InStatement[] = [];
  const explain = async (statement: InStatement): Promise<string[]> => {
    const { sql, args } = typeof statement === "string" ? { sql: statement, args: [] } : statement;
    const plan = await explainer.execute({ sql: `EXPLAIN QUERY PLAN ${sql}`, args: args ?? [] });
    return plan.rows.map((row) => row["detail"] as string);
  };
  return {
    db: database(recording(store.db.client, sent)),
    async plansOf(run) {
      sent.length = 0;
      await run();
      return (await Promise.all(sent.map(explain))).flat();
    },
    explain,
    close() {
      explainer.close();
      store.close();
    },
  };
}

/** The SQL of a statement. */
export const sqlOf = (statement: InStatement): string =>
  typeof statement === "string" ? statement : statement.sql;

/** Tells the SQL of each statement that this client executes or has kept. Returns what ends that. */
export function onExecute(client: Client, tell: (sql: string) => void): () => void {
  const execute = client.execute.bind(client);
  const file = client as DurableClient;
  const { kept } = file;
  file.kept = (read) => {
    tell(read.statement.sql);
    return kept(read);
  };
  client.execute = (statement: Parameters<typeof execute>[0]) => {
    tell(sqlOf(statement));
    return execute(statement);
  };
  return () => void Object.assign(client, { execute, kept });
}

/** The same client, which notes its statements. */
export function recording(client: Client, sent: InStatement[]): Client {
  return Object.assign(Object.create(client) as Client, {
    execute: async (statement: InStatement) => {
      sent.push(statement);
      return client.execute(statement);
    },
    batch: async (statements: InStatement[], mode: "write") => {
      sent.push(...statements);
      return client.batch(statements, mode);
    },
  });
}

/** The statements that the running test has made on its database files, in order, with BEGIN and COMMIT. */
export const asked: string[] = [];

/** Call this before the store of a test is opened. */
export function countStatements(): void {
  let end: () => void;
  beforeEach(() => {
    asked.length = 0;
    end = tellStatements((sql) => asked.push(sql));
  });
  afterEach(() => end());
}
