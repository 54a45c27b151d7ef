import { randomBytes } from "node:crypto";
import { createServer } from "node:http";
import { setImmediate } from "node:timers/promises";
import { type InStatement, type ResultSet } from "@libsql/client";
import { Webhook } from "standardwebhooks";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { type Config } from "../../shared/config/config.ts";
import { webhookTypes } from "../../shared/wire/webhooks.ts";
import { type Deps } from "../deps.ts";
import { advance } from "../jobs/lease.ts";
import { submitExecution } from "../jobs/submit.ts";
import { memoryNotifier } from "../platform/notifier.ts";
import { postFromNode } from "../platform/webhook-post.node.ts";
import { removeOld } from "../sweep.ts";
import {
  accept,
  answer,
  type Answering,
  type Receiver,
  receiverSecret,
  startReceiver,
} from "../testing/receiver.ts";
import {
  clientOf,
  newExecution,
  openTempStore,
  type TempStore,
  testDeps,
} from "../testing/temp-store.ts";
import { type Sender, sendForever, sendSome, webhookSender } from "./deliver.ts";
import { resend } from "./routes.ts";
import { isAllowedCallback, nextTry, pausesMs, secretOf, signedHeaders } from "./rules.ts";
import { keepWantedTypes, listDeliveries } from "./sql.ts";

/** A store whose events are sent to a receiver. Tests set the clock. */
class WebhookWorld {
  readonly store: TempStore;
  readonly receiver: Receiver;
  clock = Date.now();
  deps!: Deps;

  constructor(store: TempStore, receiver: Receiver) {
    this.store = store;
    this.receiver = receiver;
    this.configure({ webhook_endpoints: { main: this.endpoint() } });
  }

  passTo(time: number): void {
    this.clock = time;
    vi.setSystemTime(time);
  }

  endpoint(url = this.receiver.url) {
    return { url, secrets: [receiverSecret] };
  }

  /** Makes later senders use this configuration. */
  configure(config: Partial<Config>): void {
    const all = { webhook_private_addresses: ["127.0.0.1"], ...config };
    this.deps = testDeps(this.store.db, this.store.folder, () => this.clock, all);
  }

  /** Stores an execution and ends it; returns its id. */
  async end(columns: Parameters<typeof newExecution>[0] = {}): Promise<string> {
    const execution = newExecution(columns);
    await submitExecution(this.store.db, execution, 1000);
    await advance(this.store.db, { id: execution.id }, { kind: "cancel" }, this.clock);
    return execution.id;
  }

  sender(timeoutMs = 15_000): Sender {
    const post = postFromNode(this.deps.config);
    return webhookSender(this.deps, post, { timeoutMs, random: () => 0.5 });
  }

  /** Makes every call that is due now; returns when the next one is. */
  send(timeoutMs?: number): Promise<number | undefined> {
    return sendSome(this.sender(timeoutMs), 1000);
  }

  /** Newest first. */
  deliveries(): ReturnType<typeof listDeliveries> {
    const all = { status: undefined, endpoint: undefined, jobId: undefined, before: undefined };
    return listDeliveries(this.store.db, all, 100);
  }
}

/** Of the test that runs. */
let world: WebhookWorld;
beforeEach(async () => {
  // Receivers compare the time of a signature with their own.
  vi.useFakeTimers({ toFake: ["Date"] });
  const [store, receiver] = await Promise.all([openTempStore(), startReceiver()]);
  world = new WebhookWorld(store, receiver);
  await keepWantedTypes(store.db, webhookTypes);
});
afterEach(async () => {
  vi.useRealTimers();
  world.store.close();
  await world.receiver.close();
});

const hourMs = 3_600_000;
test("a call has the event, is signed with both secrets of the endpoint, and is made once", async () => {
  const other = `whsec_${Buffer.alloc(24, 1).toString("base64")}`;
  const main = {
    ...world.endpoint(`${world.receiver.url}/path?q=1`),
    secrets: [other, receiverSecret],
  };
  world.configure({ webhook_endpoints: { main } });
  const id = await world.end({ metadata: { order: "4711" } });
  expect(await world.send()).toBeUndefined();
  expect(await world.send()).toBeUndefined();
  expect(world.receiver.received).toHaveLength(1);
  const [call] = world.receiver.received;
  expect(call).toMatchObject({
    path: "/path?q=1",
    id: `evt_${id}`,
    event: { type: "execution.cancelled", data: { job_id: id, metadata: { order: "4711" } } },
    headers: { "content-type": "application/json" },
  });
  expect(String(call?.headers["webhook-signature"]).split(" ")).toHaveLength(2);
  expect(await world.deliveries()).toMatchObject([
    {
      receiver: "main",
      status: "delivered",
      attempts: 1,
      lastStatusCode: 204,
      endedAt: world.clock,
    },
  ]);
});

test("an endpoint of some tenants gets their events alone, each with its tenant", async () => {
  const ofB = { ...world.endpoint(`${world.receiver.url}/b`), tenants: ["b"] };
  world.configure({
    webhook_endpoints: { all: world.endpoint(`${world.receiver.url}/all`), "of-b": ofB },
  });
  for (const tenant of ["a", "b"]) await world.end({ tenant });
  await world.send();
  const heard = world.receiver.received.map(({ path, event }) => `${path} ${event.data.tenant}`);
  expect(heard.sort()).toEqual(["/all a", "/all b", "/b b"]);
  const deliveries = await world.deliveries();
  const made = deliveries.map(({ receiver, tenant }) => `${receiver} ${tenant}`);
  expect(made.sort()).toEqual(["all a", "all b", "of-b b"]);
  const again = deliveries.find(({ receiver }) => receiver === "of-b");
  world.configure({ webhook_endpoints: { "of-b": { ...ofB, tenants: ["a"] } } });
  await expect(resend(clientOf(world.deps, "b"), again!.id)).rejects.toThrow(
    "of-b of webhook_endpoints gets no events of tenant b any more",
  );
});

test("calls to a callback_url are signed with a secret of the tenant", async () => {
  const secret = await secretOf("b", receiverSecret);
  expect(secret).not.toBe(receiverSecret);
  const own = await startReceiver(accept, 0, secret);
  world.configure({ webhook_callbacks: { hosts: [own.url], secrets: [receiverSecret] } });
  await world.end({ tenant: "b", callbackUrl: `${own.url}/b` });
  await world.send();
  expect(own.received.map(({ path }) => path)).toEqual(["/b"]);
  await own.close();
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
    world.receiver.answering = answering;
    await world.end();
    const next = await world.send(status === null ? 1000 : undefined);
    expect(next).toBe(world.clock + pausesMs[0]!);
    expect(await world.deliveries()).toMatchObject([
      { status: "pending", attempts: 1, lastStatusCode: status },
    ]);
    expect((await world.deliveries())[0]?.lastError).toContain(error);
    world.passTo(next!);
    world.receiver.answering = answer(200);
    expect(await world.send()).toBeUndefined();
    const [first, second] = world.receiver.received;
    expect(second).toMatchObject({ id: first?.id, body: first?.body, path: "/" });
    expect(await world.deliveries()).toMatchObject([
      { status: "delivered", attempts: 2, lastError: null },
    ]);
  });

  test("refuses the connection is called again", async () => {
    const gone = createServer();
    await new Promise<void>((resolve) => gone.listen(0, "127.0.0.1", resolve));
    const { port } = gone.address() as { port: number };
    await new Promise((resolve) => gone.close(resolve));
    world.configure({ webhook_endpoints: { main: world.endpoint(`http://127.0.0.1:${port}`) } });
    await world.end();
    expect(await world.send()).toBe(world.clock + pausesMs[0]!);
    expect((await world.deliveries())[0]?.lastError).toBe("no connection: ECONNREFUSED");
  });

  test("for three days is given up, and gets the event when it is sent again", async () => {
    world.receiver.answering = answer(503);
    const id = await world.end();
    const start = world.clock;
    for (let next: number | undefined = world.clock; next !== undefined; next = await world.send())
      world.passTo(next);
    expect((world.clock - start) / hourMs).toBeCloseTo(72, 0);
    expect(world.receiver.received).toHaveLength(pausesMs.length + 1);
    const [given] = await world.deliveries();
    expect(given).toMatchObject({ status: "failed", lastStatusCode: 503, endedAt: world.clock });
    world.receiver.answering = answer(200);
    expect(await resend(clientOf(world.deps), given!.id)).toMatchObject({
      status: "pending",
      job_id: id,
      endpoint: "main",
      next_attempt_at: new Date(world.clock).toISOString(),
    });
    await world.send();
    expect(world.receiver.received.at(-1)?.id).toBe(`evt_${id}`);
    expect(await world.deliveries()).toMatchObject([{ status: "delivered", attempts: 14 }]);
  });

  test("with Retry-After is called when it says", async () => {
    world.receiver.answering = answer(429, { "Retry-After": "7000" });
    await world.end();
    expect(await world.send()).toBe(world.clock + 7_000_000);
  });

  test("with 410 is not called again about this event, but about the next one", async () => {
    world.receiver.answering = answer(410);
    await world.end();
    expect(await world.send()).toBeUndefined();
    expect(await world.deliveries()).toMatchObject([
      { status: "failed", attempts: 1, lastStatusCode: 410 },
    ]);
    await world.end();
    await world.send();
    expect(world.receiver.received).toHaveLength(2);
  });

  test("whose answer never ends has the event: its body is not read", async () => {
    const closed = Promise.withResolvers<void>();
    world.receiver.answering = (response) => {
      response.on("close", () => closed.resolve()).writeHead(200);
      const chunk = Buffer.alloc(65_536);
      const more = (): void => {
        while (response.write(chunk) && !response.destroyed);
      };
      response.on("drain", more);
      more();
    };
    await world.end();
    expect(await world.send()).toBeUndefined();
    await closed.promise;
    expect(await world.deliveries()).toMatchObject([{ status: "delivered" }]);
  });
});

test("a receiver that is no longer configured, or whose address is private, is not called", async () => {
  const ids = [await world.end(), await world.end({ callbackUrl: world.receiver.url })];
  world.configure({
    webhook_endpoints: { main: world.endpoint() },
    webhook_callbacks: { hosts: [world.receiver.url], secrets: [receiverSecret] },
  });
  // Makes deliveries with the earlier configuration.
  await world.sender().sendDue(0);
  world.configure({
    webhook_endpoints: { other: world.endpoint() },
    webhook_callbacks: { hosts: ["other.example"], secrets: [receiverSecret] },
  });
  await world.send();
  const [callback, second, first] = await world.deliveries();
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
  await expect(resend(clientOf(world.deps), first!.id)).rejects.toThrow(
    "webhook_endpoints has no main any more",
  );

  world.configure({ webhook_endpoints: { main: world.endpoint() }, webhook_private_addresses: [] });
  await resend(clientOf(world.deps), first!.id);
  await world.send();
  expect((await world.deliveries()).at(-1)).toMatchObject({ status: "pending", attempts: 2 });
  expect((await world.deliveries()).at(-1)?.lastError).toContain("its host is not on the internet");
  expect(world.receiver.received).toEqual([]);
});

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

test("a tenant whose receivers do not answer leaves room for calls of others, also to the same host", async () => {
  const url = "https://hooks.example";
  world.configure({ webhook_callbacks: { hosts: ["hooks.example"], secrets: [receiverSecret] } });
  const called: string[] = [];
  const silent: Parameters<typeof webhookSender>[1] = ({ pathname }, _headers, _body, signal) => {
    called.push(pathname);
    return new Promise((_, reject) => {
      signal.addEventListener("abort", () => reject(signal.reason as Error));
    });
  };
  for (let n = 0; n < 12; n++) await world.end({ tenant: "a", callbackUrl: `${url}/of-a` });
  const own = webhookSender(world.deps, silent, { atOnce: 4, timeoutMs: 300 });
  expect(await own.sendDue()).toMatchObject({ begun: 4 });
  world.passTo(world.clock + 1);
  await world.end({ tenant: "b", callbackUrl: `${url}/of-b` });
  await own.oneEnded();
  // Eight of a were due before it.
  await own.sendDue();
  await vi.waitUntil(() => called.includes("/of-b"), 30_000);
  await own.stop();
});

test("however many hosts a tenant names, they count as few receivers", async () => {
  world.configure({ webhook_callbacks: { hosts: ["*.example"], secrets: [receiverSecret] } });
  for (let n = 0; n < 90; n++) await world.end({ callbackUrl: `https://host-${n}.example/` });
  await world.sender().sendDue(0);
  const receivers = (await world.deliveries()).map(({ receiver }) => receiver);
  expect(receivers).toHaveLength(90);
  expect(new Set(receivers).size).toBeLessThanOrEqual(64);
  expect(new Set(receivers).size).toBeGreaterThan(20);
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

const dayMs = 24 * 3_600_000;
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

const failure = { tries: 1, status: 500, retryAfter: null };

test("pauses grow from seconds to a day, three days in all; then there is no further try", () => {
  expect(pausesMs).toEqual(pausesMs.toSorted((a, b) => a - b));
  const inAllMs = pausesMs.reduce((sum, pause) => sum + pause, 0);
  expect(inAllMs / hourMs).toBeCloseTo(72, 0);
  expect(nextTry({ ...failure, tries: pausesMs.length }, 0, 0.5)).toBe(24 * hourMs);
  expect(nextTry({ ...failure, tries: pausesMs.length + 1 }, 0, 0.5)).toBeUndefined();
});

test("calls that failed at the same time are spread over a fifth of the pause", () => {
  const at = (random: number) => nextTry({ ...failure, tries: 4 }, 1000, random);
  expect([at(0), at(0.5), at(1)]).toEqual([541_000, 601_000, 661_000]);
});

test.each([
  ["120", 120_000],
  ["Thu, 01 Jan 1970 00:02:01 GMT", 120_000],
  ["1", 5000],
  ["999999999", 24 * hourMs],
  ["soon", 5000],
  ["-5", 5000],
])("Retry-After: %s delays the next try, but not for more than a day", (retryAfter, pauseMs) => {
  const after = nextTry({ tries: 1, status: 503, retryAfter }, 1000, 0.5);
  expect(after).toBe(1000 + pauseMs);
});

const secret = (bytes: number) => `whsec_${randomBytes(bytes).toString("base64")}`;
const body = '{"type":"execution.succeeded","data":{"metadata":{"name":"é 😀"}}}';
const call = { id: "evt_1", timestamp: Math.floor(Date.now() / 1000), body };

test.each([24, 32, 33, 64])(
  "the reference library accepts a signature with a secret of %i bytes",
  async (bytes) => {
    const own = secret(bytes);
    const headers = await signedHeaders(call, [own]);
    expect(new Webhook(own).verify(body, headers)).toEqual(JSON.parse(body));
    expect(headers["webhook-signature"]).toBe(
      new Webhook(own).sign(call.id, new Date(call.timestamp * 1000), body),
    );
  },
);

test("while secrets rotate, a receiver needs one of both", async () => {
  const [old, next] = [secret(32), secret(32)];
  const headers = await signedHeaders(call, [old, next]);
  for (const one of [old, next]) new Webhook(one).verify(body, headers);
  expect(() => new Webhook(secret(32)).verify(body, headers)).toThrow("No matching signature");
});

test("the reference library refuses another body, id or time", async () => {
  const own = secret(32);
  const headers = await signedHeaders(call, [own]);
  const verify = (text: string, changes: object) =>
    new Webhook(own).verify(text, { ...headers, ...changes });
  expect(() => verify(`${body} `, {})).toThrow("No matching signature");
  expect(() => verify(body, { "webhook-id": "evt_2" })).toThrow("No matching signature");
  const later = String(call.timestamp + 1);
  expect(() => verify(body, { "webhook-timestamp": later })).toThrow("No matching signature");
});

test.each([
  ["https://hooks.example/a?b=c", "hooks.example", true],
  ["https://HOOKS.example:443/", "hooks.example", true],
  ["https://hooks.example:8443/", "hooks.example", false],
  ["https://hooks.example:8443/", "hooks.example:8443", true],
  ["https://hooks.example/", "hooks.example:8443", false],
  ["http://hooks.example/", "hooks.example", false],
  ["http://hooks.example/", "http://hooks.example", true],
  ["https://hooks.example/", "http://hooks.example", false],
  ["http://127.0.0.1:9000/", "http://127.0.0.1:9000", true],
  ["http://2130706433:9000/", "http://127.0.0.1:9000", true],
  ["https://[::1]:9000/", "[::1]:9000", true],
  ["https://a.b.example/", "*.example", true],
  ["https://example/", "*.example", false],
  ["https://evilexample/", "*.example", false],
  ["https://hooks.example.evil.test/", "hooks.example", false],
  ["https://hooks.example@evil.test/", "hooks.example", false],
  ["https://hooks.example./", "hooks.example", false],
])("%s with the host %s: %s", (url, host, isAllowed) => {
  expect(isAllowedCallback(url, ["other.example", host])).toBe(isAllowed);
});
