import { restore } from "./backup/restore.ts";
import { readConfig } from "./config.ts";
import { OperatorError, runMain } from "./operator-error.ts";
import { say } from "./say.ts";

/** `npm run restore -- <folder>`: a backup as the state of the configured service, which has none yet. */
await runMain(async () => {
  const [folder, ...rest] = process.argv.slice(2);
  if (folder === undefined || rest.length > 0) {
    throw new OperatorError("name a backup's folder: npm run restore -- <folder>", { exitCode: 2 });
  }
  const { executions, artifacts, created_at } = await restore(readConfig(process.env), folder);
  say(`${executions} executions and ${artifacts} artifacts are back, as of ${created_at}`);
});
