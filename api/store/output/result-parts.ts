import { eq, sql } from "drizzle-orm";
import type { StreamName } from "../../../shared/wire/output.ts";
import type { Database } from "../database.ts";
import { payloads } from "../schema.ts";
import { query, rowQuery, statement } from "../statement.ts";

const given = sql.placeholder;
const ofExecution = eq(payloads.executionId, given("id"));

const sliceOf = (name: StreamName) => {
  const stream = payloads[name];
  const slice = sql`substr(${stream}, ${given("offset")} + 1, ${given("length")})`;
  return rowQuery(
    query
      .select({ bytes: slice.mapWith(stream) })
      .from(payloads)
      .where(ofExecution),
  );
};
const slices = { stdout: sliceOf("stdout"), stderr: sliceOf("stderr") };

/** A part of a stream of a result; empty at its end. */
export async function readResultPart(
  db: Database,
  id: string,
  stream: StreamName,
  { offset, length }: { offset: number; length: number },
): Promise<Uint8Array> {
  const row = await slices[stream](db, { id, offset, length });
  return row?.bytes ?? new Uint8Array();
}

const lengths = statement(
  query
    .select({
      stdout: sql`coalesce(length(${payloads.stdout}), 0)`,
      stderr: sql`coalesce(length(${payloads.stderr}), 0)`,
    })
    .from(payloads)
    .where(ofExecution),
);

/** Bytes of each stream of a result. */
export async function resultLengths(db: Database, id: string): Promise<Record<StreamName, number>> {
  const { rows } = await db.client.execute(lengths({ id }));
  return { stdout: Number(rows[0]?.[0] ?? 0), stderr: Number(rows[0]?.[1] ?? 0) };
}

const smallOutput = rowQuery(
  query
    .select({
      output:
        sql`iif(length(${payloads.output}) <= ${given("most")}, ${payloads.output}, null)`.mapWith(
          payloads.output,
        ),
    })
    .from(payloads)
    .where(ofExecution),
);

const hasOutputQuery = statement(
  query
    .select({ has: sql`${payloads.output} is not null` })
    .from(payloads)
    .where(ofExecution),
);

/** The output of a result; `large` if it has more than `most` bytes. */
export async function readSmallOutput(
  db: Database,
  id: string,
  most: number,
): Promise<Uint8Array | "large" | null> {
  const row = await smallOutput(db, { id, most });
  if (row?.output) return row.output;
  const { rows } = await db.client.execute(hasOutputQuery({ id }));
  return rows[0]?.[0] === 1 ? "large" : null;
}
