import { readFileSync, writeFileSync } from "node:fs";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { createClient } from "@libsql/client";
import { afterEach, beforeEach, expect, test } from "vitest";
import { waitUntil } from "../../shared/testing/wait-until.ts";
import { Api } from "../testing/contract/api.ts";
import { servers } from "../testing/contract/servers.ts";
import { accept, type Receiver, receiverSecret, startReceiver } from "../testing/receiver.ts";
import { reservePort } from "../testing/reserve-port.ts";
import { startNodeIn } from "../testing/start-node.ts";
import { startSqld } from "../testing/start-sqld.ts";
import { tempFolder } from "../../shared/testing/temp-folder.ts";

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

test("an execution that ended just before kill -9 is still an event", async () => {
  const first = await start("a", { AIRLOCK_WEBHOOK_PRIVATE_ADDRESSES: "" });
  const id = await cancelled(first.url);
  first.child.kill("SIGKILL");
  await first.exited;
  // As if the process was killed before it looked.
  await inDatabase("delete from webhook_deliveries");
  await inDatabase("update webhook_events set is_fanned_out = 0");
  await start("a");
  const [call] = await receiver.calls(1);
  expect(call?.id).toBe(`evt_${id}`);
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
