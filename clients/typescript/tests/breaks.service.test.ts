import { createHash } from "node:crypto";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ScriptedAgent } from "../../../api/testing/scripted-agent.ts";
import { type NodeProcess, startNode } from "../../../api/testing/start-node.ts";
import { type CuttingProxy, startCuttingProxy } from "../../../scripts/testing/cutting-proxy.ts";
import { startUploadService, uploadBytes, uploadCuts } from "../../testing/upload-service.ts";
import { allOf } from "../../testing/all-of.ts";
import { startEventService } from "../../testing/event-service.ts";
import { type Airlock, connect, ConnectionError, TooLargeError } from "../src/index.ts";

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
