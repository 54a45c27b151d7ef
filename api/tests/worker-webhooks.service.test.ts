import { createClient } from "@libsql/client/web";
import { afterAll, afterEach, beforeEach, expect, test } from "vitest";
import { Api, body } from "../testing/contract/api.ts";
import { receiverPort, servers } from "../testing/contract/servers.ts";
import { accept, answer, type Receiver, startReceiver } from "../testing/receiver.ts";
import { startWorker } from "../testing/start-worker.ts";

let receiver: Receiver;
const callback_url = `http://127.0.0.1:${receiverPort}/own`;

const service = await startWorker(servers["with webhooks"]);
const database = createClient({ url: service.databaseUrl });
afterAll(async () => {
  database.close();
  await service.close();
});
beforeEach(async () => {
  receiver = await startReceiver(accept, receiverPort);
});
afterEach(() => receiver.close());

test("a worker's Durable Object calls when a job ends, and by its alarm again when the call failed", async () => {
  receiver.answering = answer(500);
  const api = new Api(service.url);
  const { job_id } = await api.submit({ callback_url });
  await api.post(`/jobs/${job_id}/cancel`);
  await receiver.calls(1);
  receiver.answering = accept;
  const [first, second] = await receiver.calls(2);
  expect(second).toMatchObject({ id: `evt_${job_id}`, body: first!.body });
});

test("a receiver that is slow to answer does not delay the calls to others", async () => {
  const api = new Api(service.url);
  const first = await api.submit({ callback_url });
  const secondCame = Promise.withResolvers<void>();
  receiver.answering = (response, call, request) => {
    if (call.path === "/other") secondCame.resolve();
    void secondCame.promise.then(() => accept(response, call, request));
  };
  await api.post(`/jobs/${first.job_id}/cancel`);
  await receiver.calls(1);
  const second = await api.submit({ callback_url: callback_url.replace("/own", "/other") });
  await api.post(`/jobs/${second.job_id}/cancel`);
  await receiver.calls(2);
  // The first call would have failed after 15 s without an answer, and been made again.
  const delivered = async () => {
    const { items } = body(await api.get(`/webhooks/deliveries?job_id=${first.job_id}`)) as {
      items: { status: string; attempts: number }[];
    };
    return items.map(({ status, attempts }) => [status, attempts]);
  };
  await expect.poll(delivered, { timeout: 60_000 }).toEqual([["delivered", 1]]);
});

test("the cron trigger delivers events whose wake-up was lost, of callbacks and of endpoints", async () => {
  expect(await service.scheduled()).toMatchObject({ outcome: "ok" });
  const api = new Api(service.url);
  const { job_id } = await api.submit({ callback_url });
  // An isolate that ended after its transaction has woken nobody.
  await database.execute({
    sql: `update executions set status = 'failed', ended_at = ?,
      error = '{"type":"internal_error","message":"","phase":"startup"}' where id = ?`,
    args: [Date.now(), job_id],
  });
  expect(await service.scheduled()).toMatchObject({ outcome: "ok" });
  const calls = await receiver.calls(2);
  expect(calls.map(({ id }) => id)).toEqual([`evt_${job_id}`, `evt_${job_id}`]);
  expect(calls.map(({ path }) => path).sort()).toEqual(["/failures", "/own"]);
});
