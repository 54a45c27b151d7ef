import { join } from "node:path";
import { type Client, createClient } from "@libsql/client/web";
import { openDatabase } from "../../api/platform/libsql.node.ts";
import { startSqld } from "../../api/testing/start-sqld.ts";
import { Config } from "../../shared/config/config.ts";
import { counted, type DatabaseCounts } from "../bench/services/metered-sqld.ts";

/** A database of its own, and what has been asked of it. */
export type MeteredDatabase = AsyncDisposable & {
  readonly client: Client;
  readonly url: string;
  /** Everything since it was opened. */
  readonly counts: () => DatabaseCounts;
  /** Calls that have not been answered yet. */
  readonly pending: () => number;
};

const nothing: DatabaseCounts = { calls: 0, writes: 0, rowsRead: 0, rowsWritten: 0 };

/** A libSQL server that tells what each call took. */
export async function openServer(folder: string): Promise<MeteredDatabase> {
  const sqld = await startSqld(join(folder, "db"));
  let [counts, pending] = [nothing, 0];
  const metered = async (request: Request): Promise<Response> => {
    pending += 1;
    try {
      const response = await fetch(request);
      const answer = await response.clone().text();
      counts = counted(counts, answer);
      return response;
    } finally {
      pending -= 1;
    }
  };
  const client = createClient({ url: sqld.url, fetch: metered });
  return {
    client,
    url: sqld.url,
    counts: () => counts,
    pending: () => pending,
    [Symbol.asyncDispose]: async () => {
      client.close();
      await sqld.close();
    },
  };
}

/**
 * A database file. SQLite counts the rows that were written without the entries of indexes, and does not
 * count those that were read.
 */
export async function openFile(folder: string): Promise<MeteredDatabase> {
  const client = await openDatabase(Config.parse({ data_dir: folder }));
  const execute = client.execute.bind(client);
  const batch = client.batch.bind(client);
  const changes = async (): Promise<number> =>
    Number((await execute("SELECT total_changes()")).rows[0]?.[0]);
  let counts = nothing;
  let known = await changes();

  function metered<Given extends unknown[], Answer>(call: (...given: Given) => Promise<Answer>) {
    return async (...given: Given): Promise<Answer> => {
      const answer = await call(...given);
      const written = (await changes()) - known;
      known += written;
      counts = {
        calls: counts.calls + 1,
        writes: counts.writes + Number(written > 0),
        rowsRead: 0,
        rowsWritten: counts.rowsWritten + written,
      };
      return answer;
    };
  }
  return {
    client: Object.assign(client, { execute: metered(execute), batch: metered(batch) }),
    url: `file:${folder}`,
    counts: () => counts,
    pending: () => 0,
    [Symbol.asyncDispose]: async () => client.close(),
  };
}
