import { type AgentTokenRow, invite, listTokens, revokeToken } from "../../api/agents/agents.ts";
import { AppError } from "../../api/errors.ts";
import { newId } from "../../api/ids.ts";
import { sha256 } from "../../api/platform/process.node.ts";
import { openDatabase } from "../../api/platform/sqlite.node.ts";
import { type Database, database } from "../../api/store/database.ts";
import { type Actor, findTenant, shell, usageOf } from "../../api/tenants/sql.ts";
import {
  createKey,
  limitTenant,
  type Maker,
  revokeKey,
  rotateKey,
  showKeys,
} from "../../api/tenants/tenants.ts";
import { type ApiKey, Scope, type Tenant, TenantLimits } from "../../shared/wire/access.ts";
import {
  type AgentsCommand,
  agentsHelp,
  type KeysCommand,
  keysHelp,
  parseAgentsCommand,
  parseKeysCommand,
} from "./arguments.ts";
import { OperatorError, readConfig, runMain, table } from "./command.ts";

type Given<Name extends KeysCommand["name"]> = Extract<KeysCommand, { name: Name }>;

/** Does what the operator asks for, and returns what to print. Throws AppError and OperatorError. */
async function runKeysCommand(
  command: Exclude<KeysCommand, { name: "help" }>,
  db: Database,
  actor: Actor,
): Promise<string> {
  const deps = { db, now: Date.now, newId, sha256 };
  const by: Maker = { ...actor, scopes: Scope.options };
  const find = async (key: string): Promise<ApiKey> => {
    const open = (await showKeys(deps)).filter(({ revoked_at }) => revoked_at === null);
    return findOne(open, key, "key", `there is no key ${key}`);
  };
  switch (command.name) {
    case "create": {
      const { key: name, tenant, scopes, expiresInMs, format } = command;
      return describeNew(await createKey(deps, by, { name, tenant, scopes, expiresInMs, format }));
    }
    case "list":
      return describeKeys(await showKeys(deps));
    case "rotate": {
      const { id } = await find(command.key);
      return describeNew(await rotateKey(deps, by, id, command.oldValidMs, command.format));
    }
    case "revoke": {
      const { id, name } = await find(command.key);
      await revokeKey(deps, by, id);
      return `the key ${name} (${id}) is void within a second; its jobs go on\n`;
    }
    case "limits":
      return setLimits(db, by, command);
  }
}

/** The one of these that has this id or name. */
function findOne<One extends { id: string; name: string }>(
  all: readonly One[],
  given: string,
  what: string,
  none: string,
): One {
  const list = `npm run ${what}s -- list`;
  const [found, ...more] = all.filter(({ id, name }) => id === given || name === given);
  if (!found) throw new OperatorError(`${none}; ${list} shows them`);
  if (more.length === 0) return found;
  throw new OperatorError(
    `${more.length + 1} ${what}s are called ${given}: name one by its id, which ${list} shows`,
  );
}

function describeNew({
  key,
  id,
  name,
  tenant,
  scopes,
  expires_at,
  ...rest
}: ApiKey & { key: string }) {
  const until = expires_at === null ? "" : `, until ${expires_at}`;
  const old = rest.old_valid_until;
  const both = old === undefined ? "" : `The key before it holds until ${old}.\n`;
  return `${key}\n\nIt is shown only now. Key ${name} (${id}) of tenant ${tenant}, for ${scopes.join(", ")}${until}.\n${both}`;
}

function describeKeys(keys: ApiKey[]): string {
  const titles = ["ID", "NAME", "TENANT", "SCOPES", "CREATED", "LAST USED", "EXPIRES", "REVOKED"];
  const rows = keys.map((key) => [
    key.id,
    key.name,
    key.tenant,
    key.scopes.join(","),
    key.created_at,
    key.last_used_at ?? "never",
    key.expires_at ?? "never",
    key.revoked_at ?? "-",
  ]);
  return table([titles, ...rows]);
}

async function setLimits(
  db: Database,
  by: Maker,
  { tenant, changes }: Given<"limits">,
): Promise<string> {
  const deps = { db, now: Date.now };
  const row = await findTenant(db, tenant);
  const before = row ? usageOf(row, by.at).limits : TenantLimits.parse({});
  return describeTenant(await limitTenant(deps, by, tenant, { ...before, ...changes }));
}

function describeTenant({ name, limits, usage }: Tenant): string {
  return `${name}\n${table([
    ["", "USED", "LIMIT"],
    ["queued", String(usage.queued), shown(limits.max_queued)],
    ["running", String(usage.running), shown(limits.max_running)],
    ["stored bytes", String(usage.stored_bytes), shown(limits.max_stored_bytes)],
    ["CPU seconds today", String(usage.cpu_s_today), shown(limits.max_cpu_s_day)],
    ["requests in the rate limit's window", "", shown(limits.max_requests)],
  ])}`;
}

const shown = (limit: number | null): string => (limit === null ? "none" : String(limit));

/** Does what the operator asks for, and returns what to print. Throws OperatorError. */
async function runAgentsCommand(
  command: Exclude<AgentsCommand, { name: "help" }>,
  db: Database,
  by: Actor,
): Promise<string> {
  switch (command.name) {
    case "invite": {
      const { host: name, expiresInMs } = command;
      const code = await invite({ db, sha256 }, { name, expiresInMs }, by);
      const until = time(by.at + expiresInMs);
      return `${code}\n\nIt joins one host, until ${until}. On that host:\n  npm run agent -- join --url <address of this API> --code ${code}\n`;
    }
    case "list":
      return describeTokens(await listTokens(db));
    case "revoke": {
      const open = (await listTokens(db)).filter(({ revokedAt }) => revokedAt === null);
      const none = `no agent ${command.agent} has a token`;
      const { id, name } = findOne(open, command.agent, "agent", none);
      await revokeToken(db, id, by);
      return `the token of ${name} (${id}) is void; what it was running goes to others when its leases end\n`;
    }
  }
}

function describeTokens(tokens: AgentTokenRow[]): string {
  const rows = tokens.map(({ id, name, createdAt, lastUsedAt, revokedAt }) => [
    id,
    name,
    time(createdAt),
    lastUsedAt === null ? "never" : time(lastUsedAt),
    revokedAt === null ? "-" : time(revokedAt),
  ]);
  return table([["ID", "NAME", "JOINED", "LAST USED", "REVOKED"], ...rows]);
}

const time = (ms: number): string => new Date(ms).toISOString();

/** Prints the help that is asked for, or what the work on the configured database tells. */
async function run<Command extends { readonly name: string }>(
  command: Command,
  help: string,
  work: (command: Exclude<Command, { name: "help" }>, db: Database, by: Actor) => Promise<string>,
): Promise<void> {
  if (command.name === "help") return void process.stdout.write(help);
  const client = await openDatabase(readConfig(process.env));
  try {
    const asked = command as Exclude<Command, { name: "help" }>;
    process.stdout.write(await work(asked, database(client), shell(newId(), Date.now())));
  } catch (error) {
    if (error instanceof AppError) throw new OperatorError(error.message);
    throw error;
  } finally {
    client.close();
  }
}

/** `npm run keys` and `npm run agents`: who may use the configured service, and who may work for it, while it runs. */
await runMain(async () => {
  const [what, ...args] = process.argv.slice(2);
  if (what === "keys") await run(parseKeysCommand(args), keysHelp, runKeysCommand);
  else await run(parseAgentsCommand(args), agentsHelp, runAgentsCommand);
});
