import { Command } from "commander";
import { addAgents } from "./src/commands/agents.ts";
import { addBatch } from "./src/commands/batch.ts";
import { addCompletion } from "./src/commands/completion.ts";
import { addDlq } from "./src/commands/dlq.ts";
import { addFiles } from "./src/commands/files.ts";
import { addListen } from "./src/commands/listen.ts";
import { addJobs } from "./src/commands/jobs.ts";
import { addKeys } from "./src/commands/keys.ts";
import { addRun } from "./src/commands/run.ts";
import { addService } from "./src/commands/service.ts";
import { addSessions } from "./src/commands/sessions.ts";
import { addTenants } from "./src/commands/tenants.ts";
import { addTypes } from "./src/commands/types.ts";
import { addWebhooks } from "./src/commands/webhooks.ts";
import { exitCode } from "./src/exit.ts";
import { globalOptions } from "./src/tool.ts";

/** The command `airlock` with all that it can do. */
export function createProgram(version: string): Command {
  const program = new Command("airlock")
    .description("Runs untrusted code in single-use containers: the command line of Airlock.")
    .version(version)
    // Without this, the program would take its own options from what follows the file of `run`.
    .enablePositionalOptions()
    // Without "[options]", which every command has.
    .configureHelp({ subcommandTerm: (one) => `${one.name()} ${argumentsOf(one)}`.trim() })
    .showHelpAfterError("(--help shows how)")
    .exitOverride((error) => {
      // Help and version are no errors. Anything else is a usage error.
      process.exit(error.exitCode === 0 ? 0 : exitCode.usage);
    });
  for (const option of globalOptions()) program.addOption(option);
  addRun(program);
  addJobs(program);
  addSessions(program);
  addFiles(program);
  addBatch(program);
  addTypes(program);
  addDlq(program);
  addKeys(program);
  addTenants(program);
  addAgents(program);
  addWebhooks(program);
  addListen(program);
  addService(program);
  addCompletion(program);
  return program;
}

function argumentsOf({ registeredArguments }: Command): string {
  return registeredArguments
    .map((one) => `${one.name()}${one.variadic ? "..." : ""}`)
    .map((name, at) => (registeredArguments[at]!.required ? `<${name}>` : `[${name}]`))
    .join(" ");
}
