import { backUp } from "./backup/back-up.ts";
import { readConfig } from "./config.ts";
import { OperatorError, runMain } from "./operator-error.ts";
import { say } from "./say.ts";

/** `npm run backup -- <folder>`: the configured service's database and artifacts, while it runs. */
await runMain(async () => {
  const [folder, ...rest] = process.argv.slice(2);
  if (folder === undefined || rest.length > 0) {
    throw new OperatorError("name one new folder: npm run backup -- <folder>", { exitCode: 2 });
  }
  const { manifest, missing } = await backUp(readConfig(process.env), folder);
  for (const key of missing)
    say(`the artifact ${key} has lost its bytes, and is not in the backup`);
  say(`${manifest.executions} executions and ${manifest.artifacts} artifacts are in ${folder}`);
});
