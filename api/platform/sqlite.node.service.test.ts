import { afterAll, beforeAll, expect, test } from "vitest";
import { Config } from "../../shared/config/config.ts";
import { tempFolder } from "../../shared/testing/test-file.ts";
import { type RunningDatabase, startEmptySqld } from "../testing/start-stores.ts";
import { openDatabase } from "./sqlite.node.ts";

let folder: string;
let sqld: RunningDatabase;
beforeAll(async () => {
  folder = tempFolder();
  sqld = await startEmptySqld(folder);
});
afterAll(() => sqld.close());

test("processes that start at once on an empty server all find its schema up to date", async () => {
  const config = Config.parse({ database_url: sqld.url });
  const clients = await Promise.all([1, 2, 3].map(() => openDatabase(config)));
  for (const client of clients) {
    const { rows } = await client.execute("SELECT count(*) AS n FROM executions");
    expect(rows[0]?.["n"]).toBe(0);
    client.close();
  }
});
