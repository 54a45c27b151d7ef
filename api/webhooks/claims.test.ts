import { setImmediate } from "node:timers/promises";
import type { InStatement, ResultSet } from "@libsql/client";
import { expect, test } from "vitest";
import { memoryNotifier } from "../platform/notifier/notifier-memory.ts";
import { postFromNode } from "../platform/webhooks/post.node.ts";
import { answer, type Answering } from "../testing/receiver.ts";
import { eachInWebhookWorld, type WebhookWorld } from "../testing/webhook-world.ts";
import { sendForever, sendSome, webhookSender } from "./sender.ts";

let world: WebhookWorld;
eachInWebhookWorld((own) => (world = own));

test("a call whose sender died is made again after its claim", async () => {
  world.receiver.answering = () => {};
  await world.end();
  const dying = world.sender();
  await dying.sendDue();
  await world.receiver.calls(1);
  world.receiver.answering = answer(200);
  const claimedUntil = (await world.send())!;
  expect(claimedUntil).toBe(world.clock + 60_000);
  expect(world.receiver.received).toHaveLength(1);
  world.passTo(claimedUntil);
  expect(await world.send()).toBeUndefined();
  expect(world.receiver.received).toHaveLength(2);
  // The claim of the first sender has expired: its outcome no longer counts.
  await dying.stop();
  expect(await world.deliveries()).toMatchObject([{ status: "delivered", attempts: 2 }]);
});

test("a receiver that does not answer leaves room for calls to others", async () => {
  const silent: Answering = (response, { path }) => {
    if (path === "/good") response.writeHead(200).end();
  };
  world.receiver.answering = silent;
  world.configure({
    webhook_endpoints: {
      bad: world.endpoint(`${world.receiver.url}/bad`),
      good: world.endpoint(`${world.receiver.url}/good`),
    },
  });
  const count = 30;
  for (let n = 0; n < count; n++) await world.end();
  const wakes = memoryNotifier();
  const stopping = new AbortController();
  const own = webhookSender(world.deps, postFromNode(world.deps.config), {
    onPlace: () => wakes.notify("webhook"),
  });
  const sending = sendForever(own, world.deps, wakes.subscribe(["webhook"]), stopping.signal);
  const isGood = ({ path }: { path: string }) => path === "/good";
  while (world.receiver.received.filter(isGood).length < count) await setImmediate();
  expect(world.receiver.received.filter((call) => !isGood(call)).length).toBeLessThanOrEqual(4);
  stopping.abort();
  await sending;
  await own.stop();
});

test("a receiver has four calls at a time, also when only some of them have ended", async () => {
  const held: (() => void)[] = [];
  world.receiver.answering = (response) => void held.push(() => response.writeHead(200).end());
  for (let n = 0; n < 12; n++) await world.end();
  const own = webhookSender(world.deps, postFromNode(world.deps.config), { atOnce: 20 });
  expect(await own.sendDue()).toMatchObject({ begun: 4 });
  await world.receiver.calls(4);
  held.shift()!();
  await own.oneEnded();
  expect(await own.sendDue()).toMatchObject({ begun: 1 });
  await own.stop();
});

test("a run that waits for a slow receiver also sends the events that come meanwhile", async () => {
  const other = Promise.withResolvers<void>();
  world.receiver.answering = (response, call, request) => {
    if (world.receiver.received.length > 1) other.resolve();
    void other.promise.then(() => answer(204)(response, call, request));
  };
  let wake = Promise.withResolvers<void>();
  await world.end();
  const run = sendSome(world.sender(), 1000, () => (wake = Promise.withResolvers<void>()).promise);
  await world.receiver.calls(1);
  await world.end();
  wake.resolve();
  await run;
  const once = { status: "delivered", attempts: 1 };
  expect(await world.deliveries()).toMatchObject([once, once]);
});

test("a call that ends while the sender looks for the next one reports that there is room", async () => {
  for (let n = 0; n < 2; n++) await world.end();
  const { deps, store } = world;
  const { client } = store.db;
  const execute = async (query: InStatement): Promise<ResultSet> => {
    const isLooking = typeof query !== "string" && query.sql.includes("min(due_at)");
    if (isLooking && own.isBusy()) await own.oneEnded();
    return client.execute(query);
  };
  const slow = { ...deps, db: { ...store.db, client: { ...client, execute } } };
  let places = 0;
  const own = webhookSender(slow, postFromNode(deps.config), { each: 1, onPlace: () => places++ });
  expect(await own.sendDue()).toMatchObject({ begun: 1 });
  expect(await own.sendDue()).toMatchObject({ begun: 0 });
  expect(places).toBe(1);
  expect(await own.sendDue()).toMatchObject({ begun: 1 });
  await own.stop();
});
