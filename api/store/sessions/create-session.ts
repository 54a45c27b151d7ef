import { and, eq, sql } from "drizzle-orm";
import { insertWhere } from "../database.ts";
import { isOpenSession, sessions, tenants } from "../schema.ts";
import { query } from "../statement.ts";
import { type AnyDb, batch, type Owner, perTenant, tenantRow } from "../tenant.ts";
import type { SessionRow } from "./sessions.ts";

export type NewSession = Pick<
  SessionRow,
  | "id"
  | "jobType"
  | "requirements"
  | "startupTimeoutS"
  | "env"
  | "createdAt"
  | "expiresAt"
  | "idleTimeoutS"
  | "metadata"
  | "idempotencyKey"
  | "submissionHash"
  | "keyId"
  | "correlationId"
  | "clientIp"
  | "traceparent"
> & { tenant?: string };

/** The new session, the one that has its idempotency key, or nothing if a limit of the tenant is reached. */
export type Created = { kind: "created" | "existing"; session: SessionRow } | { kind: "full" };

/**
 * Queues a session, unless its idempotency key is taken, or its tenant has `most` open ones or would store too much.
 */
export async function createSession(
  db: AnyDb,
  session: NewSession,
  most: number,
): Promise<Created> {
  const values = { tenant: "default", ...session, most, bytes: sessionBytes(session) };
  const [inserted] = await batch(db, [insert(values)]);
  const isNew = inserted?.rowsAffected === 1;
  const found = await find(db, values);
  return found ? { kind: isNew ? "created" : "existing", session: found } : { kind: "full" };
}

const encoder = new TextEncoder();
/** Bytes of a session that `tenants.stored_bytes` counts. */
export function sessionBytes({
  requirements,
  metadata,
  env,
}: Pick<NewSession, "requirements" | "metadata" | "env">): number {
  return [requirements, metadata, env].reduce<number>(
    (sum, part) => sum + (part === null ? 0 : encoder.encode(JSON.stringify(part)).length),
    0,
  );
}

const given = sql.placeholder;
const columns = [
  "id",
  "jobType",
  "requirements",
  "startupTimeoutS",
  "env",
  "createdAt",
  "expiresAt",
  "idleTimeoutS",
  "metadata",
  "idempotencyKey",
  "submissionHash",
  "keyId",
  "correlationId",
  "clientIp",
  "traceparent",
] as const;

const isIt = (own: Owner) =>
  sql`(${sessions.id} = ${given("id")} or ${sessions.idempotencyKey} = ${given("idempotencyKey")}) and ${own(sessions)}`;

const insert = perTenant((own) => {
  const row = Object.fromEntries(columns.map((name) => [name, given(name)]));
  const open = sql`(select count(*) from ${sessions} where ${isOpenSession} and ${own(sessions)})`;
  return insertWhere(
    sessions,
    { ...row, tenant: own.tenant } as never,
    and(
      sql`not exists (select 1 from ${sessions} where ${isIt(own)})`,
      sql`${open} < ${given("most")}`,
      sql`not exists (select 1 from ${tenants} where ${own(tenants)}
        and ${tenants.storedBytes} + ${given("bytes")} > ${tenants.maxStoredBytes})`,
    ),
  );
});

const find = tenantRow((own) =>
  query
    .select()
    .from(sessions)
    .where(isIt(own))
    .orderBy(eq(sessions.id, given("id")))
    .limit(1),
);
