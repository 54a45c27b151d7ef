import { createHash } from "node:crypto";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { receiverSecret } from "../../../api/testing/receiver.ts";
import { ScriptedAgent } from "../../../api/testing/scripted-agent.ts";
import { type NodeProcess, startNode } from "../../../api/testing/start-node.ts";
import { type CuttingProxy, startCuttingProxy } from "../../../scripts/testing/proxies.ts";
import {
  allOf,
  operatorKey,
  otherSecret,
  receiveDelivery,
  startEventService,
  startTenantService,
  startUploadService,
  uploadBytes,
  uploadCuts,
  wrongSecret,
} from "../../testing/services.ts";
import {
  type Airlock,
  connect,
  ConnectionError,
  ForbiddenError,
  NotFoundError,
  QuotaExceededError,
  TooLargeError,
  verifyWebhook,
} from "../src/index.ts";

describe("breaks", () => {
  const token = "agent-token-0123456789";
  let api: NodeProcess;
  let proxy: CuttingProxy;
  let airlock: Airlock;
  beforeAll(async () => {
    api = await startNode({
      AIRLOCK_AGENT_TOKENS: token,
      AIRLOCK_API_RATE_LIMIT_ENABLED: "false",
      AIRLOCK_MAX_QUEUE_SIZE: "2000",
    });
    proxy = await startCuttingProxy(api.url);
    airlock = connect({ url: proxy.url });
  });
  afterAll(async () => {
    await proxy[Symbol.asyncDispose]();
    await api.close();
  });

  const points = (end: number, step: number): number[] =>
    Array.from({ length: Math.ceil(end / step) }, (_, n) => n * step + 1);

  test("a submission whose connection breaks at any point makes one job", async () => {
    const cuts = [
      ...points(300, 60).map((request) => ({ request })),
      ...points(600, 60).map((answer) => ({ answer })),
    ];
    for (const [n, cut] of cuts.entries()) {
      proxy.cutNext(cut);
      await airlock.submit({ code: "pass", metadata: { cut: String(n) } });
      const { items } = await airlock.api.listExecutions({ metadata: [`cut:${n}`] });
      expect(items).toHaveLength(1);
    }
    expect(proxy.cuts()).toBe(cuts.length);
  });

  test("lists continue over pages, newest first, to their end or their limit", async () => {
    const code = (n: number) => ({ code: String(n), metadata: { test: "pages" } });
    const { batch_id } = await airlock.batch(Array.from({ length: 1000 }, (_, n) => code(n)));
    const { job_id: newest } = await airlock.submit(code(1000));
    const all = await allOf(airlock.list({ metadata: { test: "pages" } }));
    const ids = all.map(({ execution_id }) => execution_id);
    expect([ids[0], ids.length, new Set(ids).size]).toEqual([newest, 1001, 1001]);
    const some = await allOf(airlock.list({ status: ["queued", "running"], limit: 2 }));
    expect(some.map(({ execution_id }) => execution_id)).toEqual(ids.slice(0, 2));
    await airlock.batches.cancel(batch_id);
  });

  test("a wait whose connection breaks at any point gets the record", async () => {
    const id = (await airlock.submit("print(1)")).job_id;
    const agent = new ScriptedAgent(api.url, token);
    const before = proxy.cuts();
    proxy.cutNext({ request: 20 });
    const waiting = airlock.wait(id);
    for (let lease; !lease;) {
      const job = await agent.takeJob();
      await agent.result(job.lease_id, {
        status: "succeeded",
        exit_code: 0,
        stdout_base64: btoa("1\n"),
      });
      if (job.execution_id === id) lease = job.lease_id;
    }
    expect(await waiting).toMatchObject({ status: "succeeded", stdout: "1\n" });
    for (const answer of points(1500, 150)) {
      proxy.cutNext({ answer });
      expect(await airlock.wait(id)).toMatchObject({ status: "succeeded", stdout: "1\n" });
    }
    expect(proxy.cuts() - before).toBe(11);
  });

  test("a stream whose connection breaks at any point brings every event once, in order", async () => {
    await using service = await startEventService();
    await using breaking = await startCuttingProxy(service.url);
    const client = connect({ url: breaking.url });
    for (const answer of points(1000, 50)) {
      breaking.cutNext({ answer });
      const events = await allOf(client.stream("j"));
      // Only an event without a cursor can come again.
      expect(events.filter(({ id }) => id)).toEqual(service.events.filter(({ id }) => id));
    }
    expect(breaking.cuts()).toBe(20);
  });

  test("a stream goes on when an answer ends before the job does, and from a given event", async () => {
    await using service = await startEventService(2);
    const client = connect({ url: service.url });
    expect(await allOf(client.stream("j"))).toEqual(service.events);
    expect(await allOf(client.stream("j", { after: "c/3+" }))).toEqual(service.events.slice(5));
    expect(await allOf(client.stream("j", { after: "c/end" }))).toEqual([]);
  });

  const body = Uint8Array.from({ length: uploadBytes }, (_, n) => n);

  test("an upload whose connection breaks at any point stores one file", async () => {
    await using service = await startUploadService();
    const client = connect({ url: service.proxy.url });
    for (const [n, cut] of uploadCuts.entries()) {
      service.proxy.cutNext(cut);
      expect(await client.files.upload(String(n), body)).toMatchObject({ name: String(n) });
    }
    expect(service.proxy.cuts()).toBe(uploadCuts.length);
    const hash = createHash("sha256").update(body).digest("hex");
    const all = uploadCuts.map((_, n) => `${n} ${uploadBytes} ${hash}`);
    expect(await service.files()).toEqual(all.sort());
  });

  test("an upload that is not sent again is an error and leaves nothing; so does one that is too large", async () => {
    await using service = await startUploadService();
    const client = connect({ url: service.proxy.url, retries: 0 });
    for (const cut of uploadCuts.filter(({ request }) => request !== undefined)) {
      service.proxy.cutNext(cut);
      await expect(client.files.upload("a", body)).rejects.toThrow(ConnectionError);
    }
    for (const size of [uploadBytes + 1, 3 * uploadBytes]) {
      const upload = client.files.upload("a", new Uint8Array(size));
      await expect(upload).rejects.toThrow(TooLargeError);
    }
    expect(await service.files()).toEqual([]);
  });

  test("a service that is away is asked again, then a ConnectionError says its address", async () => {
    const away = connect({ url: "http://127.0.0.1:1", retries: 1 });
    await expect(away.wait("j")).rejects.toThrow(ConnectionError);
    await expect(away.api.getHealth()).rejects.toThrow("http://127.0.0.1:1 could not be reached");
  });
});

describe("tenants", async () => {
  const api = await startTenantService();
  afterAll(() => api.close());
  const operator = connect({ url: api.url, key: operatorKey });

  test("a key is made, rotated and revoked, and what was done is in the audit log", async () => {
    const made = await operator.keys.create({
      name: "ci",
      tenant: "search",
      scopes: ["run", "read"],
    });
    expect(made).toMatchObject({ tenant: "search", revoked_at: null });
    const [listed] = await operator.keys.list();
    expect(listed).toMatchObject({ id: made.id, name: "ci", scopes: ["run", "read"] });
    expect(listed).not.toHaveProperty("key");
    await expect(connect({ url: api.url, key: made.key }).keys.list()).rejects.toThrow(
      ForbiddenError,
    );
    const rotated = await operator.keys.rotate(made.id, { old_valid_s: 0 });
    expect(rotated.id).toBe(made.id);
    expect(rotated.key).not.toBe(made.key);
    expect((await operator.keys.revoke(made.id)).revoked_at).not.toBeNull();
    const entries = await allOf(operator.audit({ tenant: "search" }));
    expect(entries.map(({ action }) => action)).toEqual(["key.revoke", "key.rotate", "key.create"]);
    expect(await allOf(operator.audit({ action: "key.create", limit: 1 }))).toHaveLength(1);
  });

  test("a tenant has limits, sees its usage, and a met limit is an error with its figures", async () => {
    const { key } = await operator.keys.create({
      name: "m",
      tenant: "maps",
      scopes: ["run", "read"],
    });
    expect(await operator.tenants.setLimits("maps", { max_queued: 1 })).toMatchObject({
      name: "maps",
      limits: { max_queued: 1, max_running: null },
    });
    const maps = connect({ url: api.url, key, retries: 0 });
    await maps.submit("1");
    expect(await maps.usage()).toMatchObject({ tenant: "maps", usage: { queued: 1 } });
    const error: unknown = await maps.submit("1").catch((caught: unknown) => caught);
    expect(error).toBeInstanceOf(QuotaExceededError);
    expect(error).toMatchObject({
      retryAfterS: 5,
      problem: { quota: "max_queued", limit: 1, used: 1 },
    });
    expect(await operator.tenants.get("maps")).toMatchObject({ usage: { queued: 1 } });
    expect((await operator.tenants.list()).map(({ name }) => name)).toContain("maps");
  });

  test("with the option tenant, a client acts for that tenant, and reads all with *", async () => {
    const { key } = await operator.keys.create({
      name: "t",
      tenant: "tiles",
      scopes: ["run", "read"],
    });
    const { job_id } = await connect({ url: api.url, key }).submit("1");
    await expect(operator.get(job_id)).rejects.toThrow(NotFoundError);
    const tiles = connect({ url: api.url, key: operatorKey, tenant: "tiles" });
    expect(await tiles.get(job_id)).toMatchObject({ execution_id: job_id });
    const all = connect({ url: api.url, key: operatorKey, tenant: "*" });
    const found = (await allOf(all.list())).find(({ execution_id }) => execution_id === job_id);
    expect(found).toMatchObject({ tenant: "tiles" });
    await expect(connect({ url: api.url, key, tenant: "maps" }).get(job_id)).rejects.toThrow(
      ForbiddenError,
    );
  });
});

test("a delivery of the service is verified, with each of the secrets that rotate; no other is", async () => {
  const single = await receiveDelivery();
  const rotating = await receiveDelivery([receiverSecret, otherSecret]);
  for (const { headers, body, event } of [single, rotating]) {
    for (const secrets of [receiverSecret, [otherSecret, receiverSecret]]) {
      expect(await verifyWebhook(body, headers, secrets)).toEqual(event);
    }
    await expect(verifyWebhook(body, headers, wrongSecret)).rejects.toThrow("No signature");
    await expect(verifyWebhook(`${body} `, headers, receiverSecret)).rejects.toThrow(
      "No signature",
    );
    const nowMs = Number(headers["webhook-timestamp"]) * 1000 + 301_000;
    const late = verifyWebhook(body, headers, receiverSecret, { nowMs });
    await expect(late).rejects.toThrow("more than 300 s");
  }
  expect(await verifyWebhook(rotating.body, rotating.headers, otherSecret)).toEqual(rotating.event);
  const before = verifyWebhook(single.body, single.headers, otherSecret);
  await expect(before).rejects.toThrow("No signature");
});
