import type { Argument, Command, Option } from "commander";
import { type Airlock, connect } from "../typescript/src/index.ts";
import { readSettings } from "./connection.ts";
import { UsageError } from "./exit.ts";
import { age, plain } from "./terminal.ts";
import { addCommand, type GlobalOptions } from "./tool.ts";

/** A person waits for this at every press of Tab. */
const timeoutMs = 1500;

/** Commands that shells use to complete words. */
export function addCompletion(program: Command): void {
  const shells = Object.keys(completionScripts);
  const completion = addCommand(program, "completion", "print the completion script of a shell");
  const about = 'such as bash: eval "$(airlock completion bash)"';
  completion.argument("<shell>", about, shells).does(async ({ terminal }, shell) => {
    const script = completionScripts[shell];
    if (script === undefined) {
      throw new UsageError(`"${shell}" must be one of ${shells.join(", ")}`);
    }
    await terminal.write(script);
  });

  program
    .command("complete", { hidden: true })
    .argument("[words...]")
    .action(async (words: string[]) => {
      const place = placeOf(program, words);
      const typed = words.at(-1) ?? "";
      for (const [word, about = ""] of [...place.candidates, ...(await valuesAt(place))]) {
        if (word.startsWith(typed)) process.stdout.write(`${word}\t${plain(about)}\n`);
      }
    });
}

/** Returns nothing if the service does not answer soon: a shell cannot show errors. */
async function valuesAt({ named = "", globals }: Place): Promise<Candidate[]> {
  const lookup = lookups[named];
  if (!lookup) return [];
  try {
    const settings = { ...readSettings(globals, process.env), timeoutMs, retries: 0 };
    const found = await lookup(connect(settings));
    // Agents name themselves. No name is an option, and a list in a terminal stays one.
    return found.filter(([word]) => !word.startsWith("-") && word === plain(word));
  } catch {
    return [];
  }
}

/** A word that the shell may offer, and its description. */
type Candidate = readonly [word: string, about?: string];

/** What the last word can be. */
interface Place {
  readonly candidates: readonly Candidate[];
  /** The argument or option whose value it is, as commander names it. */
  readonly named?: string | undefined;
  /** The options of the program that were given before. */
  readonly globals: GlobalOptions;
}

/** Finds out what the last of these words can be. */
function placeOf(program: Command, words: readonly string[]): Place {
  const before = words.slice(0, -1);
  const current = words.at(-1) ?? "";
  const globals: Record<string, unknown> = {};
  let command = program;
  let given = 0;
  for (let word = before.shift(); word !== undefined; word = before.shift()) {
    const option = optionOf(command, word);
    const sub = given === 0 ? subcommandOf(command, word) : undefined;
    if (option?.required) {
      const value = before.shift();
      if (value === undefined) return { ...valuesOf(option, option.attributeName()), globals };
      globals[option.attributeName()] = value;
    } else if (sub) command = sub;
    else if (!word.startsWith("-") || word === "-") given++;
  }
  const { commands, options, registeredArguments } = command;
  const argument = registeredArguments[Math.min(given, registeredArguments.length - 1)];
  // What follows the file of `run` goes to the code.
  if (argument?.name() === "args") return { candidates: [], globals };
  if (current.startsWith("-")) return { candidates: [...options.map(describe), help], globals };
  if (commands.length === 0 || given > 0) {
    return { candidates: [], ...(argument && valuesOf(argument, argument.name())), globals };
  }
  const shown = command.createHelp().visibleCommands(command);
  return { candidates: shown.map((one) => [one.name(), one.description()]), globals };
}

const help: Candidate = ["--help", "display help for command"];

function optionOf({ options }: Command, word: string): Option | undefined {
  return options.find(({ short, long }) => word === short || word === long);
}

function subcommandOf({ commands }: Command, word: string): Command | undefined {
  return commands.find((one) => one.name() === word || one.aliases().includes(word));
}

function describe({ long, short, description }: Option): Candidate {
  return [long ?? short ?? "", description];
}

function valuesOf({ argChoices }: Option | Argument, named: string) {
  return { candidates: (argChoices ?? []).map((word): Candidate => [word]), named };
}

type Lookup = (airlock: Airlock) => Promise<Candidate[]>;

/** Job ids are long and begin alike, so commands take the end of an id. */
const endLength = 12;

const types: Lookup = async ({ api }) =>
  (await api.listJobTypes()).map(({ name, python_version }) => [name, `Python ${python_version}`]);

const jobs: Lookup = async ({ api }) => {
  const { items } = await api.listExecutions({
    limit: 100,
    fields: "status,job_type,created_at",
  });
  return items.map(({ execution_id, status, job_type, created_at }) => [
    execution_id.slice(-endLength),
    `${status}, ${job_type}, ${age(created_at)} ago`,
  ]);
};

const sessions: Lookup = async ({ api }) =>
  (await api.listSessions({ limit: 100 })).items
    .filter(({ status }) => status !== "ended")
    .map(({ session_id, status, job_type, created_at }) => [
      session_id.slice(-endLength),
      `${status}, ${job_type}, ${age(created_at)} ago`,
    ]);

/** Functions that get the values of an argument or option, by its name. */
const lookups: Readonly<Record<string, Lookup>> = {
  job: jobs,
  session: sessions,
  "job-type": types,
  jobType: types,
  "file-id": async ({ files }) => (await files.list()).map(({ file_id, name }) => [file_id, name]),
  agent: async ({ api }) =>
    (await api.getPoolStats()).agents.map(({ name, state }) => [name, state]),
  host: async ({ api }) =>
    (await api.listHosts()).hosts.filter((one) => !one.revoked_at).map(({ name }) => [name]),
  key: async ({ keys }) =>
    (await keys.list())
      .filter((one) => one.revoked_at === null)
      .map(({ name, tenant, scopes }) => [name, `${tenant}: ${scopes.join(", ")}`]),
  tenant: async ({ tenants }) => (await tenants.list()).map(({ name }) => [name]),
  "dead-letter": async ({ api }) =>
    (await api.listDeadLetters({ limit: 100 })).items.map((one) => [
      String(one.id),
      `${one.error_type}, ${age(one.created_at)} ago`,
    ]),
  delivery: async ({ api }) =>
    (await api.listWebhookDeliveries({ limit: 100 })).items.map((one) => [
      String(one.id),
      `${one.status}, ${age(one.created_at)} ago`,
    ]),
};

/**
 * The script of each shell. It calls `airlock complete` with the words up to the cursor, which prints a candidate per
 * line: the word, a tab, and its description. Without candidates, the shell completes files.
 */
export const completionScripts: Readonly<Record<string, string>> = {
  bash: `_airlock() {
  local line word words
  # Not COMP_WORDS: bash splits addresses at their colons.
  read -ra words <<<"\${COMP_LINE:0:COMP_POINT}"
  [[ \${COMP_LINE:0:COMP_POINT} == *[[:space:]] ]] && words+=("")
  COMPREPLY=()
  while IFS= read -r line; do
    # bash takes it into the line as it is, and a name may be "$(reboot)".
    printf -v word %q "\${line%%$'\\t'*}"
    COMPREPLY+=("$word")
  done < <(airlock complete -- "\${words[@]:1}" 2>/dev/null)
}
complete -o default -F _airlock airlock
`,
  zsh: `# A new user's zsh may not have set up its completion.
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
_airlock() {
  local -a lines
  lines=("\${(@f)$(airlock complete -- "\${(@)words[2,CURRENT]}" 2>/dev/null)}")
  if [[ -z $lines[1] ]]; then _files; return; fi
  lines=("\${(@)lines//$'\\t'/  }")
  compadd -V airlock -ld lines -- "\${(@)lines%%  *}"
}
compdef _airlock airlock
`,
  fish: `function __airlock_complete
    set -l words (commandline -opc)
    set -l word (commandline -ct)
    set -l found (airlock complete -- $words[2..-1] "$word" 2>/dev/null)
    if test (count $found) -gt 0
        printf '%s\\n' $found
    else
        __fish_complete_path "$word"
    end
end
complete -k -c airlock -f -a '(__airlock_complete)'
`,
};
