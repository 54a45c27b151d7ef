import { createClient, type Client } from "@libsql/client";
import { OperatorError } from "../command/operator-error.ts";

/** Uses a connection of its own to a database file, beside those of a service that runs. */
export async function withDatabase<T>(
  path: string,
  use: (client: Client) => Promise<T>,
): Promise<T> {
  const client = createClient({ url: `file:${path}`, concurrency: 1, timeout: 10_000 });
  try {
    return await use(client);
  } finally {
    client.close();
  }
}

/** @throws OperatorError naming what is broken. */
export async function checkIntegrity(client: Client, path: string): Promise<void> {
  const { rows } = await client.execute("PRAGMA integrity_check");
  const found = rows.map((row) => row[0] as string).join("; ");
  if (found !== "ok") throw new OperatorError(`the database ${path} is damaged: ${found}`);
}

export async function countRows(client: Client, table: string): Promise<number> {
  const { rows } = await client.execute(`SELECT count(*) FROM ${table}`);
  return Number(rows[0]?.[0]);
}
