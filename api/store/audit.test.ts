import { beforeEach, expect, test } from "vitest";
import { by } from "../testing/temp-store.ts";
import { store, useStore } from "../testing/use-store.ts";
import { addJoinCode, exchangeCode, revokeToken } from "./agents/agent-tokens.ts";
import { listAudit, pruneAudit } from "./audit.ts";

useStore();
const dayMs = 24 * 3_600_000;

beforeEach(async () => {
  await addJoinCode(store.db, { codeHash: "code", name: "gpu", expiresAt: 8e15 }, by(1));
  await exchangeCode(store.db, "code", { id: "host", tokenHash: "t", name: "n" }, 1);
});

test("a change has one entry, and a change of nothing has none, even at once", async () => {
  const revoked = await Promise.all([1, 2, 3].map((at) => revokeToken(store.db, "host", by(at))));
  expect(revoked).toEqual([true, false, false]);
  expect((await listAudit(store.db, { action: "host.revoke" }, 9)).map(({ at }) => at)).toEqual([
    1,
  ]);
});

test("an entry whose change fails is not made", async () => {
  const again = { codeHash: "code", name: "gpu", expiresAt: 8e15 };
  await expect(addJoinCode(store.db, again, by(2))).rejects.toThrow("UNIQUE");
  expect(await listAudit(store.db, {}, 9)).toHaveLength(1);
});

test("an entry cannot change, and is kept for 30 days", async () => {
  const { client } = store.db;
  await expect(client.execute("UPDATE audit SET action = 'x'")).rejects.toThrow("cannot change");
  await addJoinCode(store.db, { codeHash: "new", name: null, expiresAt: 8e15 }, by(Date.now()));
  await expect(client.execute("DELETE FROM audit")).rejects.toThrow("30 days");
  expect(await pruneAudit(store.db, Date.now() - 31 * dayMs, 9)).toBe(1);
  expect(await listAudit(store.db, {}, 9)).toHaveLength(1);
});
