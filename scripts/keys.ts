import { readConfig } from "./command/config.ts";
import { runMain } from "./command/operator-error.ts";
import { keysHelp, parseKeysCommand } from "./keys/command.ts";
import { runKeysCommand } from "./keys/run-command.ts";

/** `npm run keys -- create | list | rotate | revoke | limits`: who may use the configured service, while it runs. */
await runMain(async () => {
  const command = parseKeysCommand(process.argv.slice(2));
  if (command.name === "help") process.stdout.write(keysHelp);
  else process.stdout.write(await runKeysCommand(command, readConfig(process.env)));
});
