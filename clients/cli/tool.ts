import { Argument, type Command, Option } from "commander";
import { type Airlock, connect } from "../typescript/src/index.ts";
import { patientFetch, readSettings, type Settings } from "./connection.ts";
import { describeFailure, exitCodeOf, explainFailure, UsageError } from "./exit.ts";
import { moreThan, openTerminal, parseCount, type Terminal } from "./terminal.ts";

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

/** An option that is repeatable. */
export const many = { many: true } as const;

type Read<Given> = (given: Given, option: string) => unknown;

/** How the value of an option is read, and what else holds of it. */
type Reading = {
  readonly default?: string;
  readonly required?: true;
  /** Named in help and completion. The service checks the value. */
  readonly choices?: readonly string[];
} & (
  | { readonly many?: never; readonly read?: Read<string> }
  /** The option is repeatable. */
  | { readonly many: true; readonly read?: Read<string[]> }
);

/** A command that is being declared. What it does gets its arguments and options by their names, with their types. */
export interface Declared<Words extends unknown[], Options> {
  /** What commander knows of it. */
  readonly command: Command;
  argument<const Usage extends string>(
    usage: Usage,
    about: string,
    choices?: readonly string[],
  ): Declared<[...Words, WordOf<Usage>], Options>;
  option<const Flags extends string, const How extends Reading | Read<string> = object>(
    flags: Flags,
    about: string,
    how?: How,
  ): Declared<Words, Options & OptionOf<Flags, How>>;
  /** What the work returns is the exit code; nothing is 0. */
  does(work: (tool: Tool, ...given: [...Words, Options]) => Promise<number | void>): void;
}

/** Adds a command. Its name may have another one after it, as in "list|ls". */
export function addCommand(parent: Command, names: string, summary: string): Declared<[], object> {
  const [name = "", alias] = names.split("|");
  const command = parent.command(name).description(summary);
  if (alias !== undefined) command.alias(alias);
  for (const option of globalOptions()) command.addOption(option.hideHelp());
  command.showHelpAfterError("(--help shows how)");
  const readings = new Map<Option, Reading>();
  const declared = {
    command,
    argument(usage: string, about: string, choices?: readonly string[]) {
      const argument = new Argument(usage, about);
      if (choices) argument.argChoices = [...choices];
      command.addArgument(argument);
      return declared;
    },
    option(flags: string, about: string, how: Reading | Read<string> = {}) {
      const reading: Reading = typeof how === "function" ? { read: how } : how;
      const { default: value, required = false, choices } = reading;
      const option = new Option(flags, about).default(value).makeOptionMandatory(required);
      if (choices) option.argChoices = [...choices];
      if (reading.many) option.argParser(collect);
      readings.set(option, reading);
      command.addOption(option);
      return declared;
    },
    does(work: Work) {
      command.action((...given: unknown[]) => run(command, readings, work, given));
    },
  };
  return declared as unknown as Declared<[], object>;
}

/** A function that reads a value, of whatever is given. */
type Reader<Value> = (given: never, option: never) => Value;
/** The name of an option's value: `jobType` of "-t, --job-type <name>". */
type NameOf<Flags> = Flags extends `${string}--${infer Long}`
  ? CamelCase<Long extends `${infer Name} ${string}` ? Name : Long>
  : never;
type CamelCase<Name> = Name extends `${infer Head}-${infer Tail}`
  ? `${Head}${Capitalize<CamelCase<Tail>>}`
  : Name & string;
type TextOf<How> = How extends { choices: readonly (infer Choice)[] } ? Choice : string;
type ValueOf<Flags, How> = Flags extends `${string}<${string}`
  ? How extends Reader<infer Value> | { read: Reader<infer Value> }
    ? Value
    : How extends { many: true }
      ? TextOf<How>[]
      : TextOf<How>
  : true;
type OptionOf<Flags, How> = How extends { default: string } | { required: true }
  ? { [Name in NameOf<Flags>]: ValueOf<Flags, How> }
  : { [Name in NameOf<Flags>]?: ValueOf<Flags, How> };
type WordOf<Usage> = Usage extends `${string}...${string}`
  ? string[]
  : Usage extends `<${string}`
    ? string
    : string | undefined;

type Work = (tool: Tool, ...given: unknown[]) => Promise<number | void>;

const collect = (value: string, before: readonly string[] = []): string[] => [...before, value];

/** Has the help of a command name an option that every command takes, by what it means there. */
export function showOption({ options }: Command, long: string, description: string): void {
  for (const option of options.filter((one) => one.long === long)) {
    option.description = description;
    option.hideHelp(false);
  }
}

/** Runs a command: opens the terminal and the service, and says how the work failed. */
async function run(
  command: Command,
  readings: ReadonlyMap<Option, Reading>,
  work: Work,
  given: unknown[],
): Promise<void> {
  const globals = command.optsWithGlobals<GlobalOptions>();
  const terminal = openTerminal(globals.json === true);
  const named = command.registeredArguments[0]?.name() ?? "";
  const listing = listings[named];
  try {
    const settings = readSettings(globals, process.env, command.name() === "login");
    const airlock = connect({
      ...settings,
      tenant: namesTenants(command) ? undefined : settings.tenant,
      fetch: patientFetch(settings.url, terminal),
    });
    // Commander adds the options and the command itself.
    const words = given.slice(0, -2);
    // An empty variable of a script would make another request.
    if ([words[0]].flat().includes("")) throw new UsageError(`<${named}> is empty`);
    if (isKind(named)) words[0] = await findIds(airlock, named, words[0]);
    const tool = { settings, airlock, terminal, globals, listing };
    process.exitCode = (await work(tool, ...words, readOptions(command, readings))) ?? 0;
  } catch (error) {
    process.exitCode = exitCodeOf(error);
    if (terminal.json) terminal.document(describeFailure(error));
    else terminal.note(`airlock: ${explainFailure(error, listing)}`);
  }
}

/** The values of options, each read as it is declared. Throws UsageError. */
function readOptions(command: Command, readings: ReadonlyMap<Option, Reading>): object {
  const values = { ...command.opts<Record<string, unknown>>() };
  for (const [option, { read }] of readings) {
    const name = option.attributeName();
    if (read && values[name] !== undefined)
      values[name] = read(values[name] as never, option.long!);
  }
  return values;
}

/** The fields that have a value: what a request leaves out. */
export function given<Fields extends object>(fields: Fields): Given<Fields> {
  const present = Object.entries(fields).filter(([, value]) => value !== undefined);
  return Object.fromEntries(present) as Given<Fields>;
}

type Given<Fields> = {
  [Name in keyof Fields as undefined extends Fields[Name] ? never : Name]: Fields[Name];
} & {
  [Name in keyof Fields as undefined extends Fields[Name] ? Name : never]?: Exclude<
    Fields[Name],
    undefined
  >;
};

/** Shows one thing: lines about it, or with --json itself. */
export function show({ terminal }: Tool, value: unknown, ...lines: string[]): void {
  if (terminal.json) terminal.document(value);
  else for (const line of lines) terminal.line(line);
}

/** What each column shows of an item, by its title. */
type Columns<Item> = Record<string, (item: Item) => string>;

/** Columns of numbers and times, which line up at their right. */
const right = new Set([
  "AGE",
  "CALLS",
  "JOBS",
  "MEMORY",
  "RAN",
  "SEEN",
  "SIZE",
  "TRIES",
  "USED",
  "WAITED",
]);
const colored = new Set(["STATE", "STATUS"]);

/** Shows items as a table, or says that there are `none`; with --json, the items as they are. */
export function showList<Item>(
  { terminal }: Tool,
  items: readonly Item[],
  none: string,
  columns: Columns<Item>,
): void {
  if (terminal.json) return terminal.document(items);
  if (items.length === 0) return terminal.note(none);
  terminal.table(
    Object.keys(columns).map((title) => ({
      title,
      right: right.has(title),
      colored: colored.has(title),
    })),
    items.map((item) => Object.values(columns).map((of) => of(item))),
  );
}

/** An option of commands that show the beginning of a list. */
export const numberOption = [
  "-n, --number <count>",
  "at most so many",
  { default: "20", read: parseCount },
] as const;

/** The same for the beginning of a list, of at most `number` items. */
export function showPage<Item>(
  tool: Tool,
  { items, has_more }: { items: readonly Item[]; has_more: boolean },
  number: number,
  none: string,
  columns: Columns<Item>,
): void {
  showList(tool, items, none, columns);
  if (has_more && !tool.terminal.json) tool.terminal.note(moreThan(number));
}

/** The column that says whose each item is, where those of all tenants are listed. */
export function tenantColumn({ globals }: Tool): Columns<{ tenant?: string | undefined }> {
  return globals.tenant === "*" ? { TENANT: ({ tenant = "" }) => tenant } : {};
}

/**
 * What a command does that takes ids: the work for each, also after one has failed, and what became of it. Its exit code
 * is that of the first failure, or 0.
 */
export const forEach =
  <T>(work: (airlock: Airlock, id: string) => Promise<T>, tell: (done: T, id: string) => string) =>
  async ({ airlock, terminal, listing }: Tool, ids: readonly string[]): Promise<number> => {
    const all: unknown[] = [];
    let code = 0;
    for (const id of ids) {
      try {
        const done = await work(airlock, id);
        if (!terminal.json) terminal.line(tell(done, id));
        all.push(done ?? { id });
      } catch (error) {
        code ||= exitCodeOf(error);
        if (!terminal.json) terminal.note(`airlock: ${explainFailure(error, listing)}`);
        all.push({ id, ...describeFailure(error) });
      }
    }
    if (terminal.json) terminal.document(all);
    return code;
  };

/** What the end of an id can name, and the command that lists all of a kind. */
const kinds = {
  job: {
    many: "jobs",
    listing: "airlock ps",
    newest: async ({ api }: Airlock, limit: number) =>
      (await api.listExecutions({ limit, fields: "status" })).items.map((one) => one.execution_id),
  },
  session: {
    many: "sessions",
    listing: "airlock session list",
    newest: async ({ api }: Airlock, limit: number) =>
      (await api.listSessions({ limit })).items.map((one) => one.session_id),
  },
} as const;
type Kind = keyof typeof kinds;

/** How many of the newest ones are searched: as many as one page has. */
const searched = 100;
const partOfId = /^[0-9a-f-]{4,35}$/;

/** The id that a word names: an id, or the end of the id of one of the newest ones. */
async function findId(airlock: Airlock, kind: Kind, word: string): Promise<string> {
  if (!partOfId.test(word)) return word;
  return chooseByEnd(await kinds[kind].newest(airlock, searched), word, kind);
}

/**
 * The one id that ends with these characters. Ids of one minute begin alike.
 *
 * @throws UsageError if none does, or several do.
 */
export function chooseByEnd(ids: readonly string[], end: string, kind: Kind): string {
  const { many, listing } = kinds[kind];
  const found = ids.filter((id) => id.endsWith(end));
  const [first] = found;
  if (first !== undefined && found.length === 1) return first;
  throw new UsageError(
    first === undefined
      ? `none of the newest ${searched} ${many} has an id that ends with ${end}; ${listing} shows ids`
      : `the ids of ${found.length} ${many} end with ${end}: give more characters`,
  );
}

/** Whether an argument of this name can be the end of an id. */
const isKind = (name: string): name is Kind => Object.hasOwn(kinds, name);

/**
 * The ids of what the user gave as a command's argument: one, several or none.
 *
 * @throws UsageError as chooseByEnd.
 */
async function findIds(airlock: Airlock, kind: Kind, given: unknown): Promise<unknown> {
  if (typeof given === "string") return findId(airlock, kind, given);
  if (!Array.isArray(given)) return given;
  return Promise.all(given.map((word: string) => findId(airlock, kind, word)));
}

/**
 * Finds the one item with this id or name.
 *
 * @param list The command that shows them.
 */
export function findOne<T extends { id: string; name: string }>(
  all: readonly T[],
  given: string,
  what: string,
  list: string,
): T {
  const [found, ...more] = all.filter(({ id, name }) => id === given || name === given);
  if (!found) throw new UsageError(`there is no ${what} ${given}; ${list} shows them`);
  if (more.length === 0) return found;
  throw new UsageError(
    `${more.length + 1} have the name ${given}: say the id, which ${list} shows`,
  );
}
