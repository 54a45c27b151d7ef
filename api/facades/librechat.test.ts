import { expect, test } from "vitest";
import type { Call } from "./facade.ts";
import { filesOf, nameId, readId, shortId, timeOf, uuidAt } from "./librechat.ts";

test("a file whose id is of the upload's own millisecond, and before the upload's, is listed", async () => {
  const at = Date.UTC(2026, 0, 1);
  const session = shortId("upload", uuidAt(at, new Uint8Array(10).fill(255)));
  const file = {
    name: `${session}/a.txt`,
    size_bytes: 1,
    sha256: "0".repeat(64),
    content_type: "text/plain",
    created_at: new Date(at).toISOString(),
    expires_at: new Date(at).toISOString(),
  };
  const own = uuidAt(at);
  const items = [own, uuidAt(at - 1)].map((file_id) => ({ ...file, file_id }));
  const page = { items, limit: 100, offset: 0, has_more: false, count: 2 };
  const call = { api: async () => Response.json(page) } as unknown as Call;
  const files = await filesOf(call, session);
  expect(files.map(({ id }) => id)).toEqual([shortId("file", own)]);
});

const uuids = [
  "019aa5f0-6c1e-7c3a-8d53-2f1f3a6b9c10",
  "00000000-0000-7000-8000-000000000000",
  "ffffffff-ffff-7fff-bfff-ffffffffffff",
];

test.each(uuids)(
  "%s has an id of 21 letters for each kind, and each id leads back to it",
  (uuid) => {
    for (const kind of ["execution", "upload", "file"] as const) {
      const id = shortId(kind, uuid);
      expect(id).toMatch(/^[A-Za-z0-9_-]{21}$/);
      expect(readId(id)).toEqual({ kind, uuid });
    }
  },
);

test.each(["", "short", "-".repeat(21), "A".repeat(22), `${"A".repeat(20)}é`])(
  "%j is refused as unknown",
  (id) => expect(() => readId(id)).toThrow(expect.objectContaining({ status: 404 })),
);

test("the id of a name has 21 letters, and no other name has it", async () => {
  const ids = await Promise.all(["a.txt", "b.txt", "a/b".repeat(300)].map(nameId));
  for (const id of ids) expect(id).toMatch(/^[A-Za-z0-9_-]{21}$/);
  expect(new Set(ids).size).toBe(3);
});

test("a UUIDv7 says its time, and the first one of a time is before all others of it", () => {
  const first = uuidAt(1_764_000_000_000);
  const other = uuidAt(1_764_000_000_000, new Uint8Array(10).fill(255));
  expect([timeOf(first).getTime(), timeOf(other).getTime()]).toEqual([
    1_764_000_000_000, 1_764_000_000_000,
  ]);
  expect(first < other).toBe(true);
  expect(readId(shortId("upload", other)).uuid).toBe(other);
});
