import { and, desc, eq, lt, sql } from "drizzle-orm";
import type { AuditAction } from "../../shared/wire/client/audit.ts";
import type { JsonObject } from "../../shared/json.ts";
import type { Database } from "./database.ts";
import { audit } from "./schema.ts";
import { query, statement } from "./statement.ts";
import type { TenantFilled } from "./tenant.ts";

/** Who changes something, from where and when. A command of an operator's shell has neither key nor address. */
export interface Actor {
  keyId: string | null;
  keyName: string;
  tenant: string;
  correlationId: string;
  clientIp: string | null;
  /** Epoch ms. */
  at: number;
}

export type AuditRow = typeof audit.$inferSelect;

/** An operator's shell on the machine of the service. */
export const shell = (correlationId: string, at: number, tenant = "default"): Actor => ({
  keyId: null,
  keyName: "shell",
  tenant,
  correlationId,
  clientIp: null,
  at,
});

/**
 * The entry about a change. In a batch it stands right after the change, and is made only if that changed a
 * row. So nothing changes without its entry, and a repeat makes none.
 */
export function audited(
  by: Actor,
  action: AuditAction,
  target: string,
  detail: JsonObject | null = null,
): TenantFilled {
  return { values: { ...by, action, target, detail }, texts: { one: insert, all: insert } };
}

const given = sql.placeholder;
const insert = statement(sql`
  insert into ${audit} (at, key_id, key_name, tenant, action, target, detail, correlation_id, client_ip)
  select ${given("at")}, ${given("keyId")}, ${given("keyName")}, ${given("tenant")}, ${given("action")},
    ${given("target")}, ${sql.param(given("detail"), audit.detail)}, ${given("correlationId")}, ${given("clientIp")}
  where changes() > 0`);

export interface AuditFilter {
  action?: AuditAction | undefined;
  tenant?: string | undefined;
  /** Id of an entry: only older ones. */
  before?: number | undefined;
}

/** Entries of all tenants, newest first. */
export async function listAudit(
  db: Database,
  { action, tenant, before }: AuditFilter,
  limit: number,
): Promise<AuditRow[]> {
  const filters = [
    action === undefined ? undefined : eq(audit.action, action),
    tenant === undefined ? undefined : eq(audit.tenant, tenant),
    before === undefined ? undefined : lt(audit.id, before),
  ];
  return db.orm
    .select()
    .from(audit)
    .where(and(...filters))
    .orderBy(desc(audit.id))
    .limit(limit);
}

/** Removes up to `rows` entries older than a time (epoch ms). Returns their number. */
export async function pruneAudit(db: Database, before: number, rows: number): Promise<number> {
  const { rowsAffected } = await db.client.execute(prune({ before, rows }));
  return rowsAffected;
}

const prune = statement(
  sql`delete from ${audit} where id in (${query
    .select({ id: audit.id })
    .from(audit)
    .where(lt(audit.at, given("before")))
    .limit(given("rows"))})`,
);
