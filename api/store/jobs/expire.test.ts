import { expect, test } from "vitest";
import { newExecution, offers } from "../../testing/temp-store.ts";
import { store, useStore } from "../../testing/use-store.ts";
import { claimNext } from "./claim.ts";
import { expireLeases } from "./lease.ts";
import { submitExecution } from "./submit.ts";

useStore();

test("any number of leases that expire together cost two database calls", async () => {
  const { db } = store;
  for (let n = 0; n < 20; n++) await submitExecution(db, newExecution(), 100);
  const terms = { agentId: "a", expiresAt: 10, now: 1 };
  await claimNext(db, terms, { slots: 20, gpus: 0 }, offers);
  let calls = 0;
  const { client } = db;
  const [execute, batch] = [client.execute.bind(client), client.batch.bind(client)];
  client.execute = (statement: Parameters<typeof execute>[0]) => (calls++, execute(statement));
  client.batch = (...args) => (calls++, batch(...args));
  expect(await expireLeases(db, 10)).toHaveLength(20);
  expect(calls).toBeLessThanOrEqual(2);
  expect(await expireLeases(db, 10)).toEqual([]);
});
