import { openDatabase } from "../../api/platform/sqlite.node.ts";
import { readArguments, readConfig, runMain, say, wrongArguments } from "./command.ts";

const command = "npm run migrate";
const help = `Usage: ${command}

Brings the schema of the configured database (AIRLOCK_DATABASE_URL, AIRLOCK_DATABASE_AUTH_TOKEN) up to date.
The API on Node does so itself at each start; a worker cannot: run this before \`npx wrangler deploy\`.
`;

/**
 * `npm run migrate`: brings the schema of the configured database up to date. The API on Node does
 * so itself at each start; a worker cannot, so run this before `wrangler deploy`.
 */
await runMain(async () => {
  const args = readArguments(command, help);
  if (!args) return;
  if (args.length > 0) throw wrongArguments("it takes no arguments", command);
  const client = await openDatabase(readConfig(process.env));
  client.close();
  say("the database schema is up to date");
});
