import { parseAgentsCommand, agentsHelp } from "./agents/command.ts";
import { runAgentsCommand } from "./agents/run-command.ts";
import { readConfig } from "./command/config.ts";
import { runMain } from "./command/operator-error.ts";

/** `npm run agents -- invite | list | revoke`: who may work for the configured service, while it runs. */
await runMain(async () => {
  const command = parseAgentsCommand(process.argv.slice(2));
  if (command.name === "help") process.stdout.write(agentsHelp);
  else process.stdout.write(await runAgentsCommand(command, readConfig(process.env)));
});
