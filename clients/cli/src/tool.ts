import { type Command, Option } from "commander";
import { connect, type Airlock } from "../../typescript/src/index.ts";
import { describeFailure, exitCodeOf, explainFailure, UsageError } from "./exit.ts";
import { findIds, isKind } from "./find-id.ts";
import { patientFetch } from "./patient-fetch.ts";
import { readSettings, type Settings } from "./settings.ts";
import { openTerminal, type Terminal } from "./terminal.ts";

/** What every command works with. */
export interface Tool {
  readonly settings: Settings;
  readonly airlock: Airlock;
  readonly terminal: Terminal;
  readonly globals: GlobalOptions;
  /** The command that lists what the user names with the first argument. */
  readonly listing: string | undefined;
}

/** What lists the things that a command's first argument names. */
const listings: Readonly<Record<string, string>> = {
  job: "airlock ps",
  session: "airlock session list",
  "file-id": "airlock files list",
  "job-type": "airlock types",
  "dead-letter": "airlock dlq list",
  key: "airlock keys list",
  tenant: "airlock keys limits",
  delivery: "airlock webhooks deliveries",
};

/** Whether a command is about tenants: `--tenant` then names one in its request, which may be new. */
const namesTenants = (command: Command): boolean =>
  [command.name(), command.parent?.name()].some((name) => name === "keys" || name === "audit");

type Work = (tool: Tool, ...args: never[]) => Promise<number | void>;

/** Options that every command takes, before or after its name. */
export interface GlobalOptions {
  url?: string;
  key?: string;
  tenant?: string;
  json?: boolean;
}

export function globalOptions(): Option[] {
  return [
    new Option(
      "--url <address>",
      "address of the service; else AIRLOCK_URL, else as stored by login",
    ),
    new Option("--key <key>", "API key; else AIRLOCK_KEY, else as stored by login"),
    new Option(
      "--tenant <name>",
      "act for this tenant, * to read all; needs a key with the scope admin",
    ),
    new Option("--json", "answer with one JSON document"),
  ];
}

/** Adds a command. Its work returns an exit code, or nothing for 0. */
export function addCommand(parent: Command, usage: string, summary: string): Command {
  const command = parent.command(usage).description(summary);
  for (const option of globalOptions()) command.addOption(option.hideHelp());
  return command.showHelpAfterError("(--help shows how)");
}

/** Has the help of a command name an option that every command takes, by what it means there. */
export function showOption({ options }: Command, long: string, description: string): void {
  for (const option of options.filter((one) => one.long === long)) {
    option.description = description;
    option.hideHelp(false);
  }
}

/** An option whose values are named in help and completion. The service checks the value. */
export function oneOf(flags: string, description: string, values: readonly string[]): Option {
  const option = new Option(flags, description);
  option.argChoices = [...values];
  return option;
}

/** The action of a command: it opens the terminal and the service, and says how the work failed. */
export function does(work: Work) {
  return async function (this: Command, ...given: unknown[]): Promise<void> {
    const globals = this.optsWithGlobals<GlobalOptions>();
    const terminal = openTerminal(globals.json === true);
    const named = this.registeredArguments[0]?.name() ?? "";
    const listing = listings[named];
    try {
      const settings = readSettings(globals, process.env, this.name() === "login");
      const airlock = connect({
        ...settings,
        tenant: namesTenants(this) ? undefined : settings.tenant,
        fetch: patientFetch(settings.url, terminal),
      });
      // An empty variable of a script would make another request.
      if ([given[0]].flat().includes("")) throw new UsageError(`<${named}> is empty`);
      // Commander adds the command itself.
      const args = given.slice(0, -1);
      if (isKind(named)) args[0] = await findIds(airlock, named, args[0]);
      process.exitCode =
        (await work({ settings, airlock, terminal, globals, listing }, ...(args as never[]))) ?? 0;
    } catch (error) {
      process.exitCode = exitCodeOf(error);
      if (terminal.json) terminal.document(describeFailure(error));
      else terminal.note(`airlock: ${explainFailure(error, listing)}`);
    }
  };
}
