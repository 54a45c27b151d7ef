import type { Command } from "commander";
import type { ApiKey, NewApiKey, Scope } from "../../../typescript/src/index.ts";
import { scopes } from "../../../../shared/wire/client/scopes.ts";
import { UsageError } from "../exit.ts";
import { findOne } from "../find-one.ts";
import { forEach } from "../for-each.ts";
import { showList } from "../list.ts";
import { addCommand, does, oneOf, showOption, type Tool } from "../tool.ts";
import { age, duration, parseDuration } from "../words.ts";
import { addLimits } from "./tenants.ts";

interface CreateOptions {
  name: string;
  scopes: string;
  expires?: string;
  format?: KeyFormat;
}

type KeyFormat = "airlock" | "e2b";
const formatOption = () =>
  oneOf("--format <form>", "how it looks: e2b for E2B's clients before 2.50", ["airlock", "e2b"]);

interface RotateOptions {
  oldValid: string;
  format?: KeyFormat;
}

/** Commands about API keys, and what their tenants may use. */
export function addKeys(program: Command): void {
  const keys = addCommand(program, "keys", "API keys, and the limits of those who have them");
  const create = addCommand(keys, "create", "make a key; it is shown once")
    .requiredOption("--name <name>", "who uses it, for people")
    .addOption(
      oneOf("--scopes <list>", "what it may do, with commas", scopes).makeOptionMandatory(),
    )
    .option("--expires <duration>", "how long it is valid, such as 90d; default: until revoked");
  create.addOption(formatOption());
  showOption(create, "--tenant", "whose records it sees; is made if it is new; default: your own");
  create.action(does(createKey));

  addCommand(keys, "list", "list keys, also those that are void")
    .alias("ls")
    .action(does(listKeys));

  addCommand(keys, "rotate", "make a new key in the place of one; it is shown once")
    .argument("<key>", "its id or name, from airlock keys list")
    .option("--old-valid <duration>", "how long the old key holds too; 0 ends it at once", "1d")
    .addOption(formatOption())
    .action(
      does(async (tool: Tool, given: string, { oldValid, format }: RotateOptions) => {
        const [found] = await find(tool, [given]);
        const old_valid_s = /^0[smhd]?$/.test(oldValid) ? 0 : seconds(oldValid, "--old-valid");
        const key = await tool.airlock.keys.rotate(found!.id, {
          old_valid_s,
          ...(format && { format }),
        });
        show(tool, key);
        if (tool.terminal.json) return;
        const until = old_valid_s === 0 ? "is void" : `holds for ${duration(old_valid_s * 1000)}`;
        tool.terminal.note(`The old key ${until}.`);
      }),
    );

  addCommand(keys, "revoke", "make keys void")
    .argument("<key...>", "their ids or names, from airlock keys list")
    .action(
      does(async (tool: Tool, given: string[]) => {
        const found = new Map((await find(tool, given)).map((key) => [key.id, key.name]));
        return forEach(
          tool,
          [...found.keys()],
          (id) => tool.airlock.keys.revoke(id),
          (_, id) => `${found.get(id)} is revoked`,
        );
      }),
    );
  addLimits(keys);
}

async function createKey(
  tool: Tool,
  { name, scopes, expires, format }: CreateOptions,
): Promise<void> {
  const { tenant } = tool.globals;
  if (tenant === "*") throw new UsageError("--tenant * has no keys: name one tenant");
  const key = await tool.airlock.keys.create({
    name,
    scopes: scopes.split(/[\s,]+/).filter(Boolean) as Scope[],
    ...(tenant !== undefined && { tenant }),
    ...(expires !== undefined && { expires_in_s: seconds(expires, "--expires") }),
    ...(format && { format }),
  });
  show(tool, key);
}

const seconds = (text: string, option: string): number =>
  Math.round(parseDuration(text, option) / 1000);

/** Only the key goes to standard output, so that a script can keep it. */
function show({ terminal }: Tool, key: NewApiKey): void {
  if (terminal.json) return terminal.document(key);
  terminal.line(key.key);
  const end = key.expires_at === null ? "" : `, until ${key.expires_at}`;
  terminal.note(
    `\nIt is not shown again. ${key.name} may ${key.scopes.join(", ")} for the tenant ${key.tenant}${end}.`,
  );
}

async function listKeys(tool: Tool): Promise<void> {
  const { tenant } = tool.globals;
  const keys = await tool.airlock.keys.list(
    tenant === undefined || tenant === "*" ? {} : { tenant },
  );
  showList(tool, keys, "no keys: airlock keys create makes one", {
    ID: ({ id }) => id,
    TENANT: (key) => key.tenant,
    STATE: stateOf,
    USED: ({ last_used_at }) => (last_used_at ? age(last_used_at) : "never"),
    EXPIRES: ({ expires_at }) => expires_at?.slice(0, 10) ?? "never",
    SCOPES: ({ scopes }) => scopes.join(","),
    NAME: ({ name }) => name,
  });
}

function stateOf({ revoked_at, expires_at, old_valid_until }: ApiKey): string {
  if (revoked_at !== null) return "revoked";
  if (expires_at !== null && isOver(expires_at)) return "expired";
  return isOver(old_valid_until) ? "valid" : "rotating";
}

async function find({ airlock }: Tool, given: readonly string[]): Promise<ApiKey[]> {
  const open = (await airlock.keys.list()).filter(({ revoked_at }) => revoked_at === null);
  return given.map((one) => findOne(open, one, "key", "airlock keys list"));
}

const isOver = (time: string | undefined): boolean =>
  time === undefined || Date.parse(time) <= Date.now();
