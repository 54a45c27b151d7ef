import { and, eq, sql } from "drizzle-orm";
import type { StreamName } from "../../../shared/wire/output.ts";
import { payloads } from "../schema.ts";
import { query } from "../statement.ts";
import { type AnyDb, type Owner, tenantRow } from "../tenant.ts";

const given = sql.placeholder;
const ofExecution = (own: Owner) => and(eq(payloads.executionId, given("id")), own(payloads));

/** Columns that are read in parts. */
export const longColumns = ["stdout", "stderr", "output", "stdin"] as const;
export type LongColumn = (typeof longColumns)[number];

const sliceOf = (name: LongColumn) => {
  const column = payloads[name];
  const slice = sql`substr(${column}, ${given("offset")} + 1, ${given("length")})`;
  return tenantRow((own) =>
    query
      .select({ bytes: slice.mapWith(column) })
      .from(payloads)
      .where(ofExecution(own)),
  );
};
const slices = Object.fromEntries(longColumns.map((name) => [name, sliceOf(name)])) as Record<
  LongColumn,
  ReturnType<typeof sliceOf>
>;

/** A part of a column; empty at its end. */
export async function readResultPart(
  db: AnyDb,
  id: string,
  column: LongColumn,
  { offset, length }: { offset: number; length: number },
): Promise<Uint8Array> {
  const row = await slices[column](db, { id, offset, length });
  return row?.bytes ?? new Uint8Array();
}

const lengths = tenantRow((own) =>
  query
    .select({
      stdout: sql<number>`coalesce(length(${payloads.stdout}), 0)`,
      stderr: sql<number>`coalesce(length(${payloads.stderr}), 0)`,
    })
    .from(payloads)
    .where(ofExecution(own)),
);

/** Bytes of each stream of a result. */
export async function resultLengths(db: AnyDb, id: string): Promise<Record<StreamName, number>> {
  return (await lengths(db, { id })) ?? { stdout: 0, stderr: 0 };
}

const smallOutput = tenantRow((own) =>
  query
    .select({
      output:
        sql`iif(length(${payloads.output}) <= ${given("most")}, ${payloads.output}, null)`.mapWith(
          payloads.output,
        ),
    })
    .from(payloads)
    .where(ofExecution(own)),
);

const hasOutput = tenantRow((own) =>
  query
    .select({ has: sql<number>`${payloads.output} is not null` })
    .from(payloads)
    .where(ofExecution(own)),
);

/** The output of a result; `large` if it has more than `most` bytes. */
export async function readSmallOutput(
  db: AnyDb,
  id: string,
  most: number,
): Promise<Uint8Array | "large" | null> {
  const row = await smallOutput(db, { id, most });
  if (row?.output) return row.output;
  return (await hasOutput(db, { id }))?.has === 1 ? "large" : null;
}
