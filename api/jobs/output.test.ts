import type { Client, InStatement, ResultSet } from "@libsql/client";
import { beforeAll, expect, test } from "vitest";
import { database, type Database } from "../store/database.ts";
import { leasedJob } from "../testing/temp-store.ts";
import { store, useOneStore } from "../testing/use-store.ts";
import { type Part, recordOutput } from "./output.ts";

const now = 100;
const maxBytes = 10_000_000;
useOneStore();
let rowsRead = 0;
let db: Database;
beforeAll(() => {
  db = database(counting(store.db.client));
});

/** A client that counts the rows that it brings. */
function counting(client: Client): Client {
  return Object.assign(Object.create(client) as Client, {
    async execute(statement: InStatement): Promise<ResultSet> {
      const result = await client.execute(statement);
      rowsRead += result.rows.length;
      return result;
    },
  });
}

async function running(): Promise<{ executionId: string; attempt: number; leaseId: string }> {
  const { id, leaseId } = await leasedJob(db);
  return { executionId: id, attempt: 1, leaseId };
}

const bytes = (size: number, byte = 7): Uint8Array => new Uint8Array(size).fill(byte);

test("a repeat is recognised by reading only the rows that hold it; other bytes at its offset are a conflict", async () => {
  const lease = await running();
  const post = (parts: Part[]) => recordOutput(db, lease, parts, maxBytes, now);
  const at = (offset: number, size = 50_000, byte = 7): Part[] => [
    { stream: "stdout", offset, data: bytes(size, byte) },
    { stream: "stderr", offset: offset / 100, data: bytes(size / 100, byte) },
  ];
  for (let n = 0; n < 40; n++) expect(await post(at(n * 50_000))).toBe("recorded");
  rowsRead = 0;
  for (const n of [0, 20, 39]) expect(await post(at(n * 50_000))).toBe("recorded");
  // There are 80 rows. Each post also reads the end of the output and looks up its first row.
  expect(rowsRead).toBeLessThan(30);
  expect(await post(at(20 * 50_000, 50_000, 8))).toBe("conflict");
  expect(await post(at(39 * 50_000, 60_000))).toBe("conflict");
  expect(await post([{ stream: "stderr", offset: 500, data: bytes(500) }])).toBe("recorded");
  expect(await post([{ stream: "stderr", offset: 19_999, data: bytes(2) }])).toBe("conflict");
});

test("small parts of one post share a row", async () => {
  const lease = await running();
  const parts = Array.from({ length: 50 }, (_, n): Part => {
    return {
      stream: n % 2 === 0 ? "stdout" : "stderr",
      offset: Math.floor(n / 2) * 100,
      data: bytes(100),
    };
  });
  expect(await recordOutput(db, lease, parts, maxBytes, now)).toBe("recorded");
  const of = "SELECT count(*) AS rows FROM output_chunks WHERE execution_id = ?";
  const { rows } = await store.db.client.execute({ sql: of, args: [lease.executionId] });
  expect(rows[0]).toMatchObject({ rows: 1 });
});
