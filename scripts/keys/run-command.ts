import { createKey, type Maker, revokeKey, rotateKey, showKeys } from "../../api/keys/keys.ts";
import { limitTenant } from "../../api/keys/tenants.ts";
import { AppError } from "../../api/errors.ts";
import { newId } from "../../api/new-id.ts";
import { sha256 } from "../../api/platform/hash.node.ts";
import { openDatabase } from "../../api/platform/libsql.node.ts";
import { shell } from "../../api/store/audit.ts";
import { type Database, database } from "../../api/store/database.ts";
import { findTenant, usageOf } from "../../api/store/tenants.ts";
import type { Config } from "../../shared/config/config.ts";
import { type ApiKey, Scope } from "../../shared/wire/client/keys.ts";
import type { Tenant } from "../../shared/wire/client/tenants.ts";
import { TenantLimits } from "../../shared/wire/tenant.ts";
import { OperatorError } from "../command/operator-error.ts";
import { table } from "../command/table.ts";
import type { KeysCommand } from "./command.ts";

type Given<Name extends KeysCommand["name"]> = Extract<KeysCommand, { name: Name }>;

/** Does what the operator asks for, and returns what to print. Throws OperatorError. */
export async function runKeysCommand(
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
