import { readArguments, wrongArguments } from "./command/arguments.ts";
import { restore } from "./backup/restore.ts";
import { readConfig } from "./command/config.ts";
import { runMain } from "./command/operator-error.ts";
import { say } from "./command/say.ts";

const command = "npm run restore";
const help = `Usage: ${command} -- <folder of a backup>

Brings a backup back into the configured data_dir, which must hold no database yet. Start the service after it.
`;

/** `npm run restore -- <folder>`: a backup as the state of the configured service, which has none yet. */
await runMain(async () => {
  const args = readArguments(command, help);
  if (!args) return;
  const [folder, ...rest] = args;
  if (folder === undefined || rest.length > 0) {
    throw wrongArguments("name a backup's folder", command);
  }
  const { executions, artifacts, created_at } = await restore(readConfig(process.env), folder);
  say(`${executions} executions and ${artifacts} artifacts are back, as of ${created_at}`);
});
