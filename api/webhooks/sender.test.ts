import { clientOf } from "../testing/test-deps.ts";
import { createServer } from "node:http";
import { describe, expect, test } from "vitest";
import { pausesMs } from "../domain/webhooks/retry.ts";
import { secretOf } from "../domain/webhooks/signature.ts";
import {
  answer,
  type Answering,
  receiverSecret,
  accept,
  startReceiver,
} from "../testing/receiver.ts";
import { eachInWebhookWorld, type WebhookWorld } from "../testing/webhook-world.ts";
import { resend } from "./deliveries.ts";

const hourMs = 3_600_000;

let world: WebhookWorld;
eachInWebhookWorld((own) => (world = own));

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

test("every endpoint gets the types that it wants; the callback_url of the request gets its event too", async () => {
  const unwanted = {
    ...world.endpoint(`${world.receiver.url}/no`),
    events: ["execution.failed" as const],
  };
  const wanted = {
    ...world.endpoint(`${world.receiver.url}/yes`),
    events: ["execution.cancelled" as const],
  };
  world.configure({
    webhook_endpoints: { a: world.endpoint(`${world.receiver.url}/all`), unwanted, wanted },
    webhook_callbacks: { hosts: [world.receiver.url], secrets: [receiverSecret] },
  });
  await world.end({ callbackUrl: `${world.receiver.url}/own` });
  await world.send();
  expect(world.receiver.received.map(({ path }) => path).sort()).toEqual(["/all", "/own", "/yes"]);
  expect(new Set(world.receiver.received.map(({ id, body }) => id + body)).size).toBe(1);
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

  test("for an hour gets the event when it works again", async () => {
    world.receiver.answering = answer(500);
    await world.end();
    const start = world.clock;
    while (world.clock - start < hourMs) world.passTo((await world.send())!);
    const failed = world.receiver.received.length;
    expect(failed).toBe(6);
    world.receiver.answering = answer(200);
    await world.send();
    expect(world.receiver.received).toHaveLength(failed + 1);
    expect(await world.deliveries()).toMatchObject([{ status: "delivered" }]);
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
