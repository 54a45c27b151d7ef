import { expect, test } from "vitest";
import type { Call } from "../facade.ts";
import { filesOf } from "./files.ts";
import { shortId, uuidAt } from "./ids.ts";

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
