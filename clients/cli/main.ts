import { Command } from "commander";
import { addCompletion } from "./completion.ts";
import { useProxies } from "./connection.ts";
import { endWithItsReader, exitCode, exitCodeOf, explainFailure } from "./exit.ts";
import { addFiles } from "./files.ts";
import { addBatch, addDlq, addJobs } from "./jobs.ts";
import packageJson from "./package.json" with { type: "json" };
import { addRun } from "./run.ts";
import { addAgents, addService } from "./service.ts";
import { addSessions } from "./sessions.ts";
import { addKeys, addTenants } from "./tenants.ts";
import { globalOptions } from "./tool.ts";
import { addTypes } from "./types.ts";
import { addListen, addWebhooks } from "./webhooks.ts";

/** The command `airlock` with all that it can do. */
function createProgram(version: string): Command {
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

endWithItsReader();
try {
  useProxies(process.env);
  await createProgram(packageJson.version).parseAsync();
} catch (error) {
  process.stderr.write(`airlock: ${explainFailure(error)}\n`);
  process.exitCode = exitCodeOf(error);
}
