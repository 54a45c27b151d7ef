import { clientOf } from "../testing/test-deps.ts";
import { expect, test } from "vitest";
import { eachInWebhookWorld, type WebhookWorld } from "../testing/webhook-world.ts";
import { removeOld } from "../upkeep/sweep.ts";
import { resend } from "./deliveries.ts";

const dayMs = 24 * 3_600_000;

let world: WebhookWorld;
eachInWebhookWorld((own) => (world = own));

test("deliveries are kept for 7 days after their last change, then removed with their events", async () => {
  await world.end();
  await world.send();
  const count = async () => {
    const sql =
      "select (select count(*) from webhook_events), (select count(*) from webhook_deliveries)";
    const { rows } = await world.store.db.client.execute(sql);
    return [rows[0]?.[0], rows[0]?.[1]];
  };
  world.passTo(world.clock + 6 * dayMs);
  const [old] = await world.deliveries();
  await resend(clientOf(world.deps), old!.id);
  world.passTo(world.clock + 2 * dayMs);
  await removeOld(world.deps);
  expect(await count()).toEqual([1, 1]);
  world.passTo(world.clock + 5 * dayMs + 1);
  await removeOld(world.deps);
  expect(await count()).toEqual([0, 0]);
});

test("a sweep removes more old deliveries than fit into one batch", async () => {
  for (let n = 0; n < 120; n++) await world.end();
  await world.sender().sendDue(0);
  world.passTo(world.clock + 7 * dayMs + 1);
  await removeOld(world.deps);
  const { rows } = await world.store.db.client.execute("select count(*) from webhook_events");
  expect(rows[0]?.[0]).toBe(0);
});
