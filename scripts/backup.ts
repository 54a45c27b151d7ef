import { readArguments, wrongArguments } from "./command/arguments.ts";
import { backUp } from "./backup/back-up.ts";
import { readConfig } from "./command/config.ts";
import { runMain } from "./command/operator-error.ts";
import { say } from "./command/say.ts";

const command = "npm run backup";
const help = `Usage: ${command} -- <new folder>

Copies the configured service's database and artifacts into a folder that does not exist or is empty, while
the service runs. \`npm run restore\` brings them back. docs/guides/operating.md says what is in it.
`;

/** `npm run backup -- <folder>`: the configured service's database and artifacts, while it runs. */
await runMain(async () => {
  const args = readArguments(command, help);
  if (!args) return;
  const [folder, ...rest] = args;
  if (folder === undefined || rest.length > 0) throw wrongArguments("name one new folder", command);
  const { manifest, missing } = await backUp(readConfig(process.env), folder);
  for (const key of missing)
    say(`the artifact ${key} has lost its bytes, and is not in the backup`);
  say(`${manifest.executions} executions and ${manifest.artifacts} artifacts are in ${folder}`);
});
