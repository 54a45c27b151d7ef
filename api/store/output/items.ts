import { and, asc, eq, gt, sql, type SQL } from "drizzle-orm";
import type { RunItem } from "../../../shared/wire/agent/items.ts";
import { transact, type Database } from "../database.ts";
import { executions, runItems } from "../schema.ts";
import { type Filled, listed, query, statement } from "../statement.ts";
import { type AnyDb, type Owner, tenantRows } from "../tenant.ts";
import { leaseHolds, type Recorded } from "./artifacts.ts";
import type { Attempt } from "./chunks.ts";

const given = sql.placeholder;
const item = sql`each.value`;
/** Inserts items, given as JSON, for the execution that meets a condition. What is there already stays. */
const insertFor = (condition: SQL) =>
  statement(sql`
    insert into ${runItems} (execution_id, attempt, number, kind, main, data, stdout_at, stderr_at, at)
    select ${executions.id}, ${executions.attempt}, ${item} ->> 'number', ${item} ->> 'kind',
      ${item} ->> 'main', ${item} -> 'data', ${item} ->> 'stdout_at', ${item} ->> 'stderr_at', ${given("now")}
    from ${executions}, json_each(${given("items")}) as each
    where ${executions.leaseId} = ${given("leaseId")} and ${condition}
    on conflict do nothing`);

/** Items as the statements read them. */
function asRows(items: RunItem[]): string {
  return JSON.stringify(
    items.map((each) => {
      if ("data" in each) return { kind: "display", ...each };
      const { name, arguments: given, ...place } = each;
      return { kind: "tool_call", main: false, data: { name, arguments: given }, ...place };
    }),
  );
}

const insertHeld = insertFor(leaseHolds(given("leaseId"), given("now")));
const isLeaseHeld = statement(sql`select ${leaseHolds(given("leaseId"), given("now"))}`);
const countSame = statement(
  sql`select count(*) from json_each(${given("items")}) as each join ${runItems}
    on ${runItems.executionId} = ${given("executionId")} and ${runItems.attempt} = ${given("attempt")}
      and ${runItems.number} = ${item} ->> 'number' where ${runItems.kind} = ${item} ->> 'kind'
      and ${runItems.data} = ${item} -> 'data'`,
);

/** Stores items of a running execution, if its lease still holds. */
export async function recordItems(
  db: Database,
  { executionId, attempt, leaseId }: Attempt & { leaseId: string },
  items: RunItem[],
  now: number,
): Promise<Recorded> {
  const values = { executionId, attempt, items: asRows(items) };
  const [, same, held] = await transact(db, [
    insertHeld({ items: values.items, leaseId, now }),
    countSame(values),
    isLeaseHeld({ leaseId, now }),
  ]);
  if (same?.rows[0]?.[0] === items.length) return "recorded";
  return held?.rows[0]?.[0] === 1 ? "conflict" : "lease_lost";
}

/** Stores the items of the result that has ended an execution, in its transaction. */
const insertLast = insertFor(sql`${executions.resultHash} = ${given("hash")}`);
export function keepItems(
  items: RunItem[],
  result: { leaseId: string; hash: string; now: number },
): Filled {
  return insertLast({ ...result, items: asRows(items) });
}

export type ItemRow = typeof runItems.$inferSelect;

const shownBy = (own: Owner) =>
  and(
    sql`${runItems.executionId} in ${listed("ids")}`,
    eq(runItems.kind, "display"),
    own(runItems),
    sql`exists (select 1 from ${executions} where ${executions.id} = ${runItems.executionId}
      and ${executions.attempt} = ${runItems.attempt} and ${own(executions)})`,
  );
const shown = tenantRows((own) =>
  query.select().from(runItems).where(shownBy(own)).orderBy(asc(runItems.number)),
);
const shownBytes = tenantRows((own) =>
  query
    .select({
      id: runItems.executionId,
      bytes: sql<number>`sum(octet_length(${runItems.data}))`,
    })
    .from(runItems)
    .where(shownBy(own))
    .groupBy(runItems.executionId),
);

/** What the last attempt of executions has shown; "left" where it has more bytes than `most`. */
export async function listItems(
  db: AnyDb,
  ids: string[],
  most: number,
): Promise<Map<string, ItemRow[] | "left">> {
  if (ids.length === 0) return new Map();
  const sizes = await shownBytes(db, { ids: JSON.stringify(ids) });
  const small = sizes.filter(({ bytes }) => bytes <= most).map(({ id }) => id);
  const rows = small.length === 0 ? [] : await shown(db, { ids: JSON.stringify(small) });
  return new Map(
    sizes.map(({ id, bytes }) => [
      id,
      bytes <= most ? rows.filter((row) => row.executionId === id) : "left",
    ]),
  );
}

/** The next few items of an attempt after a number, of those that are meant. */
export const itemsOf = (isMeant?: (own: Owner) => SQL | undefined, most = 4) =>
  tenantRows((own) =>
    query
      .select()
      .from(runItems)
      .where(
        and(
          eq(runItems.executionId, given("executionId")),
          eq(runItems.attempt, given("attempt")),
          gt(runItems.number, given("number")),
          isMeant?.(own),
          own(runItems),
        ),
      )
      .orderBy(asc(runItems.number))
      .limit(most),
  );
const after = itemsOf();
/** The next that an attempt has shown after a number: alone, as a reader may keep it in memory for long. */
export const shownAfter = itemsOf(() => eq(runItems.kind, "display"), 1);
const afterWithoutResult = itemsOf(
  (own) => sql`exists (select 1 from ${executions} where ${executions.id} = ${runItems.executionId}
    and ${executions.resultHash} is null and ${own(executions)})`,
);

/** The next few items of an attempt after the one with this number; with `withoutResult`, none once a result is stored. */
export async function itemsAfter(
  db: AnyDb,
  { executionId, attempt }: Attempt,
  number: number,
  withoutResult: boolean,
): Promise<ItemRow[]> {
  const read = withoutResult ? afterWithoutResult : after;
  return read(db, { executionId, attempt, number });
}
