import { AppError } from "../../api/errors.ts";
import { newId } from "../../api/ids.ts";
import { sha256 } from "../../api/platform/process.node.ts";
import { openDatabase } from "../../api/platform/sqlite.node.ts";
import { type Database, database } from "../../api/store/database.ts";
import { findTenant, shell, usageOf } from "../../api/tenants/sql.ts";
import {
  createKey,
  limitTenant,
  type Maker,
  revokeKey,
  rotateKey,
  showKeys,
} from "../../api/tenants/tenants.ts";
import type { Config } from "../../shared/config/config.ts";
import { type ApiKey, Scope, type Tenant, TenantLimits } from "../../shared/wire/access.ts";
import { type KeysCommand, keysHelp, parseKeysCommand } from "./arguments.ts";
import { OperatorError, readConfig, runMain, table } from "./command.ts";

type Given<Name extends KeysCommand["name"]> = Extract<KeysCommand, { name: Name }>;

/** Does what the operator asks for, and returns what to print. Throws OperatorError. */
async function runKeysCommand(
  command: Exclude<KeysCommand, { name: "help" }>,
  config: Config,
): Promise<string> {
  const client = await openDatabase(config);
  const db = database(client);
  const deps = { db, now: Date.now, newId, sha256 };
  const by: Maker = { ...shell(newId(), Date.now()), scopes: Scope.options };
  try {
    switch (command.name) {
      case "create": {
        const { key: name, tenant, scopes, expiresInMs, format } = command;
        return describeNew(
          await createKey(deps, by, { name, tenant, scopes, expiresInMs, format }),
        );
      }
      case "list":
        return describeKeys(await showKeys(deps));
      case "rotate": {
        const { id } = await find(deps, command.key);
        return describeNew(await rotateKey(deps, by, id, command.oldValidMs, command.format));
      }
      case "revoke": {
        const { id, name } = await find(deps, command.key);
        await revokeKey(deps, by, id);
        return `the key ${name} (${id}) is void within a second; its jobs go on\n`;
      }
      case "limits":
        return await setLimits(db, by, command);
    }
  } catch (error) {
    if (error instanceof AppError) throw new OperatorError(error.message);
    throw error;
  } finally {
    client.close();
  }
}

async function find(deps: { db: Database; now: () => number }, name: string): Promise<ApiKey> {
  const open = (await showKeys(deps)).filter(({ revoked_at }) => revoked_at === null);
  const [found, ...more] = open.filter((key) => key.id === name || key.name === name);
  if (!found) throw new OperatorError(`there is no key ${name}; npm run keys -- list shows them`);
  if (more.length === 0) return found;
  throw new OperatorError(
    `${more.length + 1} keys are called ${name}: name one by its id, which npm run keys -- list shows`,
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

/** `npm run keys -- create | list | rotate | revoke | limits`: who may use the configured service, while it runs. */
await runMain(async () => {
  const command = parseKeysCommand(process.argv.slice(2));
  if (command.name === "help") process.stdout.write(keysHelp);
  else process.stdout.write(await runKeysCommand(command, readConfig(process.env)));
});
