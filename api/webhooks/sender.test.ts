import { createServer } from "node:http";
import { setImmediate } from "node:timers/promises";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { webhookTypes } from "../../shared/wire/webhook-type.ts";
import type { Config } from "../../shared/config/config.ts";
import type { Deps } from "../deps.ts";
import { pausesMs } from "../domain/webhooks/retry.ts";
import { memoryNotifier } from "../platform/notifier/notifier-memory.ts";
import { postFromNode } from "../platform/webhooks/post.node.ts";
import { advance } from "../store/jobs/advance.ts";
import { submitExecution } from "../store/jobs/submit.ts";
import { keepWantedTypes } from "../store/webhooks/events.ts";
import { listDeliveries } from "../store/webhooks/list.ts";
import {
  answer,
  type Answering,
  type Receiver,
  receiverSecret,
  startReceiver,
} from "../testing/receiver.ts";
import { newExecution, openTempStore, type TempStore } from "../testing/temp-store.ts";
import { testDeps } from "../testing/test-deps.ts";
import { removeOld } from "../upkeep/sweep.ts";
import { resend } from "./deliveries.ts";
import { sendForever, sendSome, webhookSender } from "./sender.ts";

const hourMs = 3_600_000;
const dayMs = 24 * hourMs;

let store: TempStore;
let receiver: Receiver;
let clock: number;
let deps: Deps;
beforeEach(async () => {
  // Receivers compare the time of a signature with theirs.
  vi.useFakeTimers({ toFake: ["Date"] });
  clock = Date.now();
  [store, receiver] = await Promise.all([openTempStore(), startReceiver()]);
  deps = withConfig({ webhook_endpoints: { main: endpoint() } });
  await keepWantedTypes(store.db, webhookTypes);
});
afterEach(async () => {
  vi.useRealTimers();
  store.close();
  await receiver.close();
});

function passTo(time: number): void {
  clock = time;
  vi.setSystemTime(time);
}

const endpoint = (url = receiver.url) => ({ url, secrets: [receiverSecret] });

function withConfig(config: Partial<Config>): Deps {
  const all = { webhook_private_addresses: ["127.0.0.1"], ...config };
  return testDeps(store.db, store.folder, () => clock, all);
}

async function end(columns: Parameters<typeof newExecution>[0] = {}): Promise<string> {
  const execution = newExecution(columns);
  await submitExecution(store.db, execution, 1000);
  await advance(store.db, { id: execution.id }, { kind: "cancel" }, clock);
  return execution.id;
}

const sender = (timeoutMs = 15_000) =>
  webhookSender(deps, postFromNode(deps.config), { timeoutMs, random: () => 0.5 });
/** Makes every call that is due now. */
const send = (timeoutMs?: number) => sendSome(sender(timeoutMs), 1000);

const all = { status: undefined, endpoint: undefined, jobId: undefined, before: undefined };
const deliveries = () => listDeliveries(store.db, all, 100);

test("a call has the event, is signed with both secrets of the endpoint, and is made once", async () => {
  const other = `whsec_${Buffer.alloc(24, 1).toString("base64")}`;
  const main = { ...endpoint(`${receiver.url}/path?q=1`), secrets: [other, receiverSecret] };
  deps = withConfig({ webhook_endpoints: { main } });
  const id = await end({ metadata: { order: "4711" } });
  expect(await send()).toBeUndefined();
  expect(await send()).toBeUndefined();
  expect(receiver.received).toHaveLength(1);
  const [call] = receiver.received;
  expect(call).toMatchObject({
    path: "/path?q=1",
    id: `evt_${id}`,
    event: { type: "execution.cancelled", data: { job_id: id, metadata: { order: "4711" } } },
    headers: { "content-type": "application/json" },
  });
  expect(String(call?.headers["webhook-signature"]).split(" ")).toHaveLength(2);
  expect(await deliveries()).toMatchObject([
    { receiver: "main", status: "delivered", attempts: 1, lastStatusCode: 204, endedAt: clock },
  ]);
});

test("every endpoint gets the types that it wants; the callback_url of the request gets its event too", async () => {
  const unwanted = { ...endpoint(`${receiver.url}/no`), events: ["execution.failed" as const] };
  const wanted = { ...endpoint(`${receiver.url}/yes`), events: ["execution.cancelled" as const] };
  deps = withConfig({
    webhook_endpoints: { a: endpoint(`${receiver.url}/all`), unwanted, wanted },
    webhook_callbacks: { hosts: [receiver.url], secrets: [receiverSecret] },
  });
  await end({ callbackUrl: `${receiver.url}/own` });
  await send();
  expect(receiver.received.map(({ path }) => path).sort()).toEqual(["/all", "/own", "/yes"]);
  expect(new Set(receiver.received.map(({ id, body }) => id + body)).size).toBe(1);
});

describe("a receiver that fails", () => {
  const ways: Record<string, [Answering, status: number | null, error: string]> = {
    "answers 500": [answer(500), 500, "answered 500"],
    "answers 404": [answer(404), 404, "answered 404"],
    redirects: [answer(308, { Location: "/elsewhere" }), 308, "redirects are not followed"],
    "is too slow": [() => {}, null, "no answer in time"],
    "closes before it answers": [
      (_, __, request) => request.socket.destroy(),
      null,
      "no connection",
    ],
    "closes in the middle of its headers": [
      (_, __, request) => request.socket.end("HTTP/1.1 200 OK\r\nContent-"),
      null,
      "no connection",
    ],
    "answers something else than HTTP": [
      (_, __, request) => request.socket.end("220 mail ready\r\n\r\n"),
      null,
      "no connection",
    ],
  };
  test.each(Object.entries(ways))("%s is called again", async (_, [answering, status, error]) => {
    receiver.answering = answering;
    await end();
    const next = await send(status === null ? 1000 : undefined);
    expect(next).toBe(clock + pausesMs[0]!);
    expect(await deliveries()).toMatchObject([
      { status: "pending", attempts: 1, lastStatusCode: status },
    ]);
    expect((await deliveries())[0]?.lastError).toContain(error);
    passTo(next!);
    receiver.answering = answer(200);
    expect(await send()).toBeUndefined();
    const [first, second] = receiver.received;
    expect(second).toMatchObject({ id: first?.id, body: first?.body, path: "/" });
    expect(await deliveries()).toMatchObject([
      { status: "delivered", attempts: 2, lastError: null },
    ]);
  });

  test("refuses the connection is called again", async () => {
    const gone = createServer();
    await new Promise<void>((resolve) => gone.listen(0, "127.0.0.1", resolve));
    const { port } = gone.address() as { port: number };
    await new Promise((resolve) => gone.close(resolve));
    deps = withConfig({ webhook_endpoints: { main: endpoint(`http://127.0.0.1:${port}`) } });
    await end();
    expect(await send()).toBe(clock + pausesMs[0]!);
    expect((await deliveries())[0]?.lastError).toBe("no connection: ECONNREFUSED");
  });

  test("for an hour gets the event when it works again", async () => {
    receiver.answering = answer(500);
    await end();
    const start = clock;
    while (clock - start < hourMs) passTo((await send())!);
    const failed = receiver.received.length;
    expect(failed).toBe(6);
    receiver.answering = answer(200);
    await send();
    expect(receiver.received).toHaveLength(failed + 1);
    expect(await deliveries()).toMatchObject([{ status: "delivered" }]);
  });

  test("for three days is given up, and gets the event when it is sent again", async () => {
    receiver.answering = answer(503);
    const id = await end();
    const start = clock;
    for (let next: number | undefined = clock; next !== undefined; next = await send())
      passTo(next);
    expect((clock - start) / hourMs).toBeCloseTo(72, 0);
    expect(receiver.received).toHaveLength(pausesMs.length + 1);
    const [given] = await deliveries();
    expect(given).toMatchObject({ status: "failed", lastStatusCode: 503, endedAt: clock });
    receiver.answering = answer(200);
    expect(await resend(deps, given!.id)).toMatchObject({
      status: "pending",
      job_id: id,
      endpoint: "main",
      next_attempt_at: new Date(clock).toISOString(),
    });
    await send();
    expect(receiver.received.at(-1)?.id).toBe(`evt_${id}`);
    expect(await deliveries()).toMatchObject([{ status: "delivered", attempts: 14 }]);
  });

  test("with Retry-After is called when it says", async () => {
    receiver.answering = answer(429, { "Retry-After": "7000" });
    await end();
    expect(await send()).toBe(clock + 7_000_000);
  });

  test("with 410 is not called again about this event, but about the next one", async () => {
    receiver.answering = answer(410);
    await end();
    expect(await send()).toBeUndefined();
    expect(await deliveries()).toMatchObject([
      { status: "failed", attempts: 1, lastStatusCode: 410 },
    ]);
    await end();
    await send();
    expect(receiver.received).toHaveLength(2);
  });

  test("whose answer never ends has the event: its body is not read", async () => {
    const closed = Promise.withResolvers<void>();
    receiver.answering = (response) => {
      response.on("close", () => closed.resolve()).writeHead(200);
      const chunk = Buffer.alloc(65_536);
      const more = (): void => {
        while (response.write(chunk) && !response.destroyed);
      };
      response.on("drain", more);
      more();
    };
    await end();
    expect(await send()).toBeUndefined();
    await closed.promise;
    expect(await deliveries()).toMatchObject([{ status: "delivered" }]);
  });
});

test("a receiver that is no longer configured, or whose address is private, is not called", async () => {
  const ids = [await end(), await end({ callbackUrl: receiver.url })];
  deps = withConfig({
    webhook_endpoints: { main: endpoint() },
    webhook_callbacks: { hosts: [receiver.url], secrets: [receiverSecret] },
  });
  // Makes deliveries with the earlier configuration.
  await sender().turn(0);
  deps = withConfig({
    webhook_endpoints: { other: endpoint() },
    webhook_callbacks: { hosts: ["other.example"], secrets: [receiverSecret] },
  });
  await send();
  const [callback, second, first] = await deliveries();
  expect([first, second, callback].map((one) => one?.executionId)).toEqual([
    ids[0],
    ids[1],
    ids[1],
  ]);
  for (const one of [first, second]) {
    expect(one).toMatchObject({
      status: "failed",
      lastError: "webhook_endpoints has no main any more",
    });
  }
  expect(callback?.lastError).toContain("no longer one of the hosts");
  await expect(resend(deps, first!.id)).rejects.toThrow("webhook_endpoints has no main any more");

  deps = withConfig({ webhook_endpoints: { main: endpoint() }, webhook_private_addresses: [] });
  await resend(deps, first!.id);
  await send();
  expect((await deliveries()).at(-1)).toMatchObject({ status: "pending", attempts: 2 });
  expect((await deliveries()).at(-1)?.lastError).toContain("127.0.0.1 is not on the internet");
  expect(receiver.received).toEqual([]);
});

test("several senders make each call once", async () => {
  for (let n = 0; n < 40; n++) await end();
  const senders = [sender(), sender(), sender()];
  await Promise.all(senders.map((one) => sendSome(one, 1000)));
  expect(receiver.received).toHaveLength(40);
  expect(new Set(receiver.received.map(({ id }) => id)).size).toBe(40);
});

test("a call whose sender died is made again after its claim", async () => {
  receiver.answering = () => {};
  await end();
  const dying = sender();
  await dying.turn();
  await receiver.calls(1);
  receiver.answering = answer(200);
  const claimedUntil = (await send())!;
  expect(claimedUntil).toBe(clock + 60_000);
  expect(receiver.received).toHaveLength(1);
  passTo(claimedUntil);
  expect(await send()).toBeUndefined();
  expect(receiver.received).toHaveLength(2);
  // The claim of the first sender has expired: its outcome no longer counts.
  await dying.stop();
  expect(await deliveries()).toMatchObject([{ status: "delivered", attempts: 2 }]);
});

test("a sender that stops hands its calls back; they do not count", async () => {
  receiver.answering = () => {};
  await end();
  const stopped = sender();
  await stopped.turn();
  await receiver.calls(1);
  await stopped.stop();
  expect(await deliveries()).toMatchObject([{ status: "pending", attempts: 0, dueAt: clock }]);
});

test("a receiver that does not answer leaves places for the others", async () => {
  const silent: Answering = (response, { path }) => {
    if (path === "/good") response.writeHead(200).end();
  };
  receiver.answering = silent;
  deps = withConfig({
    webhook_endpoints: {
      bad: endpoint(`${receiver.url}/bad`),
      good: endpoint(`${receiver.url}/good`),
    },
  });
  const count = 30;
  for (let n = 0; n < count; n++) await end();
  const wakes = memoryNotifier();
  const stopping = new AbortController();
  const own = webhookSender(deps, postFromNode(deps.config), {
    onPlace: () => wakes.notify("webhook"),
  });
  const sending = sendForever(own, deps, wakes.subscribe(["webhook"]), stopping.signal);
  const isGood = ({ path }: { path: string }) => path === "/good";
  while (receiver.received.filter(isGood).length < count) await setImmediate();
  expect(receiver.received.filter((call) => !isGood(call)).length).toBeLessThanOrEqual(4);
  stopping.abort();
  await sending;
  await own.stop();
});

test("deliveries are kept for 7 days after their last change, then removed with their events", async () => {
  await end();
  await send();
  const count = async () => {
    const sql =
      "select (select count(*) from webhook_events), (select count(*) from webhook_deliveries)";
    const { rows } = await store.db.client.execute(sql);
    return [rows[0]?.[0], rows[0]?.[1]];
  };
  passTo(clock + 6 * dayMs);
  const [old] = await deliveries();
  await resend(deps, old!.id);
  passTo(clock + 2 * dayMs);
  await removeOld(deps);
  expect(await count()).toEqual([1, 1]);
  passTo(clock + 5 * dayMs + 1);
  await removeOld(deps);
  expect(await count()).toEqual([0, 0]);
});

test("a sweep removes more old deliveries than fit into one batch", async () => {
  for (let n = 0; n < 120; n++) await end();
  await sender().turn(0);
  passTo(clock + 7 * dayMs + 1);
  await removeOld(deps);
  const { rows } = await store.db.client.execute("select count(*) from webhook_events");
  expect(rows[0]?.[0]).toBe(0);
});
