import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { createClient } from "@libsql/client";
import { afterAll, afterEach, beforeEach, describe, expect, test } from "vitest";
import { tempFolder, waitUntil } from "../../shared/testing/test-file.ts";
import { Api, body, receiverPort, servers } from "../testing/contract/api.ts";
import {
  accept,
  answer,
  type Receiver,
  receiverSecret,
  startReceiver,
} from "../testing/receiver.ts";
import { reservePort } from "../testing/reserve-port.ts";
import { startNodeIn } from "../testing/start-node.ts";
import { startSqld } from "../testing/start-stores.ts";
import { startWorker } from "../testing/start-worker.ts";

describe("webhooks", () => {
  let folder: string;
  let receiver: Receiver;
  const running: { close(): Promise<unknown> }[] = [];
  beforeEach(async () => {
    folder = tempFolder();
    receiver = await startReceiver();
  });
  afterEach(async () => {
    for (const one of running.splice(0).toReversed()) await one.close();
    await receiver.close();
  });

  async function start(name: string, vars: Record<string, string> = {}, url = receiver.url) {
    const endpoints = { main: { url, secrets: [receiverSecret] } };
    const api = await startNodeIn(join(folder, name), {
      ...servers.open,
      AIRLOCK_LOG_LEVEL: "info",
      AIRLOCK_WEBHOOK_ENDPOINTS: JSON.stringify(endpoints),
      AIRLOCK_WEBHOOK_PRIVATE_ADDRESSES: "127.0.0.1",
      ...vars,
    });
    running.push(api);
    return api;
  }

  async function cancelled(url: string): Promise<string> {
    const api = new Api(url);
    const { job_id } = await api.submit();
    expect((await api.post(`/jobs/${job_id}/cancel`)).status).toBe(200);
    return job_id;
  }

  async function inDatabase<T>(sql: string): Promise<T[]> {
    const client = createClient({ url: `file:${join(folder, "a", "airlock.db")}` });
    const { rows } = await client.execute(sql);
    client.close();
    return rows as T[];
  }

  test("two API processes with one database deliver each event once, whichever ended the job", async () => {
    const database = await startSqld(join(folder, "db"));
    running.push(database);
    const vars = { AIRLOCK_DATABASE_URL: database.url };
    const apis = [await start("a", vars), await start("b", vars)];
    const ids: string[] = [];
    for (let n = 0; n < 30; n++) ids.push(await cancelled(apis[n % 2]!.url));
    await receiver.calls(30);
    const isDone = async () =>
      (await new Api(apis[0]!.url).get("/webhooks/deliveries?status=pending")).text.startsWith(
        '{"items":[]',
      );
    await waitUntil("nothing is pending", isDone);
    expect(receiver.received.map(({ event }) => event.data.job_id).sort()).toEqual(ids.sort());
  });

  test("a call whose process is killed before the answer is made again by the next process", async () => {
    receiver.answering = () => {};
    const first = await start("a");
    const id = await cancelled(first.url);
    await receiver.calls(1);
    first.child.kill("SIGKILL");
    await first.exited;
    const [claimed] = await inDatabase<{ wait: number }>(
      "select claimed_until - created_at as wait from webhook_deliveries where status = 'pending'",
    );
    expect(claimed?.wait).toBeGreaterThanOrEqual(60_000);
    // The minute of its claim has passed.
    await inDatabase("update webhook_deliveries set claimed_until = 0, due_at = 0");
    receiver.answering = accept;
    await start("a");
    const [before, after] = await receiver.calls(2);
    expect(after).toMatchObject({ id: `evt_${id}`, body: before!.body });
  });

  test("a process that stops in order hands its calls back, and logs no secret", async () => {
    receiver.answering = () => {};
    const first = await start(
      "a",
      { AIRLOCK_STOP_DELAY_S: "0" },
      `${receiver.url}/token-in-the-path`,
    );
    await cancelled(first.url);
    await receiver.calls(1);
    first.child.kill("SIGTERM");
    expect(await first.exited).toBe(0);
    expect(
      await inDatabase("select status, attempts, claimed_until from webhook_deliveries"),
    ).toMatchObject([{ status: "pending", attempts: 0, claimed_until: null }]);
    const said = await first.logged;
    expect(said).not.toContain(receiverSecret);
    expect(said).not.toContain("token-in-the-path");
    const stored = readFileSync(join(folder, "a", "airlock.db")).toString("latin1");
    expect(stored).not.toContain(receiverSecret);
    expect(stored).not.toContain("token-in-the-path");
  });

  test("the receiver of the guide prints the events of jobs", async () => {
    const guide = readFileSync("docs/guides/webhooks.md", "utf8");
    const [, script = ""] = /```python\n([^]*?)```/.exec(guide) ?? [];
    writeFileSync(join(folder, "receiver.py"), script);
    const port = String(await reservePort());
    const child = spawn("python3", [join(folder, "receiver.py")], {
      env: { PATH: process.env["PATH"], SECRET: receiverSecret, PORT: port },
      stdio: ["ignore", "pipe", "ignore"],
    });
    const exited = once(child, "exit");
    running.push({
      async close() {
        child.kill("SIGKILL");
        await exited;
      },
    });
    const url = `http://127.0.0.1:${port}/`;
    const forged = () =>
      fetch(url, {
        method: "POST",
        body: "{}",
        headers: {
          "webhook-id": "evt_1",
          "webhook-timestamp": String(Math.floor(Date.now() / 1000)),
          "webhook-signature": "v1,AAAA",
        },
      }).then(
        ({ status }) => status,
        () => undefined,
      );
    await waitUntil("the receiver refuses a forged call", async () => (await forged()) === 400);
    const api = await start("a", {}, url);
    const id = await cancelled(api.url);
    for await (const line of createInterface(child.stdout)) {
      expect(line).toBe(`execution.cancelled ${id}`);
      break;
    }
  });
});

describe("worker webhooks", async () => {
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
});
