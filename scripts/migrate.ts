import { readConfig } from "../api/platform/config-file.node.ts";
import { openDatabase } from "../api/platform/libsql.node.ts";

/**
 * `npm run migrate`: brings the schema of the configured database up to date. The API on Node does
 * so itself at each start; a worker cannot, so run this before `wrangler deploy`.
 */
const client = await openDatabase(readConfig(process.env));
client.close();
process.stdout.write("airlock: the database schema is up to date\n");
