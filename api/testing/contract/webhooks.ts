import { expect } from "vitest";
import { waitUntil } from "../../../shared/testing/test-file.ts";
import {
  WebhookDelivery,
  WebhookDeliveryPage,
  WebhookEventPage,
} from "../../../shared/wire/webhooks.ts";
import { answer, type Receiver, startReceiver } from "../receiver.ts";
import {
  type Api,
  body,
  expectFault,
  failedJob,
  on,
  problemOf,
  receiverPort,
  type Row,
  test,
} from "./api.ts";

const server = "with webhooks";
const own = `http://127.0.0.1:${receiverPort}`;

/** A row with a receiver of webhooks, which also gets the calls about jobs of earlier rows. */
const withReceiver = (
  rule: string,
  check: (api: Api, receiver: Receiver) => Promise<void>,
): Row => ({
  rule,
  server,
  async check(api) {
    const receiver = await startReceiver(undefined, receiverPort);
    try {
      await check(api, receiver);
    } finally {
      await receiver.close();
    }
  },
});

async function list(api: Api, query: string): Promise<WebhookDelivery[]> {
  const page = WebhookDeliveryPage.parse(body(await api.get(`/webhooks/deliveries?${query}`)));
  expect(page.count).toBe(page.items.length);
  return page.items;
}

/** The delivery of a job's only event, when it is as expected. */
async function delivery(
  api: Api,
  id: string,
  isSo: (one: WebhookDelivery) => boolean,
): Promise<WebhookDelivery> {
  let found: WebhookDelivery | undefined;
  await waitUntil(`a delivery of ${id}`, async () => {
    found = (await list(api, `job_id=${id}`)).find(isSo);
    return found !== undefined;
  });
  return found!;
}

async function callsAbout(receiver: Receiver, id: string, count = 1) {
  const about = () => receiver.received.filter(({ event }) => event.data.job_id === id);
  while (about().length < count) await receiver.calls(receiver.received.length + 1);
  return about();
}

const callback_url = "https://hooks.example/airlock?token=1";

export const webhookRows = on(server, [
  test("Every request that makes a job takes a callback_url; its full record has it, reruns and forks do not inherit it", async (api) => {
    const { job_id } = await api.submit({ callback_url });
    expect((await api.record(job_id)).callback_url).toBe(callback_url);
    expect(await api.record(job_id, "")).not.toHaveProperty("callback_url");
    const rerun = async (fields: object) => {
      const { job_id: id } = body(await api.post(`/jobs/${job_id}/rerun`, fields)) as {
        job_id: string;
      };
      return api.record(id);
    };
    expect(await rerun({})).not.toHaveProperty("callback_url");
    expect((await rerun({ callback_url })).callback_url).toBe(callback_url);
    const fork = body(await api.post(`/jobs/${job_id}/fork`, { code: "2", callback_url }));
    const { jobs } = body(
      await api.post("/execute/batch", { jobs: [{ code: "1", callback_url }, { code: "2" }] }),
    ) as { jobs: { job_id: string }[] };
    const made = [(fork as { job_id: string }).job_id, ...jobs.map((one) => one.job_id)];
    const urls = await Promise.all(made.map(async (id) => (await api.record(id)).callback_url));
    expect(urls).toEqual([callback_url, callback_url, undefined]);
  }),
  test("A callback_url is 400 if its host, scheme or port is not allowed, or if it has a user or a fragment, and nothing is stored", async (api) => {
    const stored = await api.newest();
    for (const url of [
      "https://evil.example/",
      "http://hooks.example/",
      "https://hooks.example:8443/",
      "https://a:b@hooks.example/",
      "https://hooks.example/#a",
      "hooks.example",
      "ftp://hooks.example/",
    ]) {
      const reply = await api.post("/execute/async", { code: "1", callback_url: url });
      expectFault(reply, "callback_url");
    }
    expect(await api.newest()).toEqual(stored);
  }),
  ...on("open", [
    test("Without webhook_callbacks a callback_url is 400, alone and in a batch", async (api) => {
      expectFault(await api.post("/execute/async", { code: "1", callback_url }), "callback_url");
      const reply = await api.post("/execute/batch", { jobs: [{ code: "1", callback_url }] });
      const { jobs } = body(reply) as { jobs: { errors: { path: string }[] }[] };
      expect(jobs[0]?.errors[0]?.path).toBe("callback_url");
    }),
  ]),
  test("The same idempotency key with another callback_url is 409", async (api) => {
    const key = { idempotency_key: crypto.randomUUID() };
    const { job_id } = await api.submit({ ...key, callback_url });
    expect((await api.submit({ ...key, callback_url })).job_id).toBe(job_id);
    for (const other of [{}, { callback_url: "https://hooks.example/other" }]) {
      const refused = await api.post("/execute/async", { code: "print(1)", ...key, ...other });
      expect(problemOf(refused)).toMatchObject({ status: 409, existing_job_id: job_id });
    }
  }),
  withReceiver(
    "When a job ends, its callback_url and every endpoint that wants it are called once, signed",
    async (api, receiver) => {
      const metadata = { order: "4711" };
      const id = await failedJob(api, "value_error", { callback_url: `${own}/own`, metadata });
      const calls = await callsAbout(receiver, id, 2);
      expect(calls.map(({ path }) => path).sort()).toEqual(["/failures", "/own"]);
      for (const call of calls) {
        expect(call.id).toBe(`evt_${id}`);
        expect(call.event).toMatchObject({
          type: "execution.failed",
          data: {
            job_id: id,
            status: "failed",
            exit_code: 1,
            error: { type: "value_error", phase: "execution" },
            metadata,
            links: { record: `/executions/${id}`, result: `/jobs/${id}/result` },
          },
        });
      }
      await delivery(api, id, ({ status }) => status === "delivered");
      const made = await list(api, `job_id=${id}`);
      expect(new Set(made.map(({ endpoint }) => endpoint))).toEqual(new Set(["failures", null]));
    },
  ),
  withReceiver(
    "A job that is cancelled in the queue is an event too, which an endpoint for failures does not get",
    async (api, receiver) => {
      const { job_id } = await api.submit({ callback_url: `${own}/own` });
      await api.post(`/jobs/${job_id}/cancel`);
      const [call] = await callsAbout(receiver, job_id);
      expect(call).toMatchObject({ path: "/own", event: { type: "execution.cancelled" } });
      const done = await delivery(api, job_id, ({ status }) => status === "delivered");
      expect(done).toMatchObject({
        endpoint: null,
        callback_url: `${own}/own`,
        attempts: 1,
        last_status_code: 204,
        next_attempt_at: null,
      });
    },
  ),
  withReceiver(
    "A call that fails is listed with its reason and next try; resend makes it due at once",
    async (api, receiver) => {
      receiver.answering = answer(503, { "Retry-After": "3600" });
      const id = await failedJob(api);
      const failed = await delivery(api, id, (one) => one.last_status_code === 503);
      expect(failed).toMatchObject({
        endpoint: "failures",
        status: "pending",
        last_error: "the receiver answered 503",
      });
      expect(Date.parse(failed.next_attempt_at!)).toBeGreaterThan(Date.now() + 3_000_000);
      receiver.answering = answer(200);
      const reply = await api.post(`/webhooks/deliveries/${failed.id}/resend`);
      expect(reply.status).toBe(202);
      expect(WebhookDelivery.parse(body(reply)).status).toBe("pending");
      const calls = await callsAbout(receiver, id, 2);
      expect(calls[1]).toMatchObject({ id: calls[0]!.id, body: calls[0]!.body });
      await delivery(api, id, ({ status }) => status === "delivered");
      // What was delivered can be sent again too.
      expect((await api.post(`/webhooks/deliveries/${failed.id}/resend`)).status).toBe(202);
      await callsAbout(receiver, id, 3);
    },
  ),
  withReceiver(
    "Deliveries are listed newest first, by status, endpoint and job, with a cursor",
    async (api) => {
      const ids = [await failedJob(api), await failedJob(api), await failedJob(api)];
      for (const id of ids) await delivery(api, id, ({ status }) => status === "delivered");
      const query = "endpoint=failures&status=delivered";
      const [first, second] = await list(api, `${query}&limit=2`);
      expect([first?.job_id, second?.job_id]).toEqual([ids[2], ids[1]]);
      const [third] = await list(api, `${query}&limit=1&before=${second!.id}`);
      expect(third?.job_id).toBe(ids[0]);
      expect(await list(api, `job_id=${ids[0]}&status=failed`)).toEqual([]);
      expect(await list(api, "endpoint=nobody")).toEqual([]);
      const page = body(await api.get("/webhooks/deliveries?limit=1")) as { has_more: boolean };
      expect(page.has_more).toBe(true);
    },
  ),
]);

const events = async (api: Api, query = "") =>
  WebhookEventPage.parse(body(await api.get(`/webhooks/events?${query}`)));

/** Events from a cursor on, until one is about this job. */
async function eventsUpTo(api: Api, id: string, cursor: string) {
  const items: WebhookEventPage["items"] = [];
  while (!items.some(({ event }) => event.data.job_id === id)) {
    const page = await events(api, `after=${cursor}&wait=20`);
    items.push(...page.items);
    cursor = page.cursor;
  }
  return { items, cursor };
}

export const webhookEventRows: Row[] = [
  test("Without any receiver, a client that listens gets every later end of an execution once, in order, as a receiver would", async (api) => {
    const { cursor, items } = await events(api);
    expect(items).toEqual([]);
    const metadata = { order: "4711" };
    const { job_id } = await api.submit({ metadata });
    await api.post(`/jobs/${job_id}/cancel`);
    const failed = await failedJob(api);
    const heard = await eventsUpTo(api, failed, cursor);
    expect(heard.items.map((one) => one.event.data.job_id)).toEqual([job_id, failed]);
    expect(heard.items[0]).toMatchObject({
      webhook_id: `evt_${job_id}`,
      event: { type: "execution.cancelled", data: { status: "cancelled", metadata } },
    });
    expect(await events(api, `after=${heard.cursor}`)).toMatchObject({ items: [] });
    const first = await events(api, `after=${cursor}&limit=1`);
    expect(first).toMatchObject({ has_more: true, items: [heard.items[0]] });
    expect((await events(api, `after=${first.cursor}`)).items).toEqual([heard.items[1]]);
    expect(await list(api, `job_id=${failed}`)).toEqual([]);
  }),
  test("A request that waits for events is answered when a job ends, and says how soon to ask again", async (api) => {
    const { cursor } = await events(api);
    const { job_id } = await api.submit();
    const waiting = events(api, `after=${cursor}&wait=20`);
    await api.post(`/jobs/${job_id}/cancel`);
    const { items, listening_s } = await waiting;
    expect(items).toMatchObject([{ webhook_id: `evt_${job_id}` }]);
    expect(listening_s).toBeGreaterThan(0);
    expect(listening_s).toBeLessThanOrEqual(140);
  }),
  test("A client whose cursor is from another database gets the newest one at once, and later ends with it", async (api) => {
    const { cursor } = await events(api);
    const answer = await events(api, "after=999999999999999&wait=1");
    expect(answer.items).toEqual([]);
    expect(Number(answer.cursor)).toBeGreaterThanOrEqual(Number(cursor));
    expect(Number(answer.cursor)).toBeLessThan(999999999999999);
    const id = await failedJob(api);
    const { items } = await eventsUpTo(api, id, answer.cursor);
    expect(items.at(-1)).toMatchObject({ webhook_id: `evt_${id}` });
  }),
  withReceiver(
    "A client that listens also gets the events of configured receivers; these are still called once",
    async (api, receiver) => {
      const { cursor } = await events(api);
      const id = await failedJob(api, "value_error", { callback_url: `${own}/own` });
      const calls = await callsAbout(receiver, id, 2);
      const { items } = await eventsUpTo(api, id, cursor);
      const about = items.filter(({ event }) => event.data.job_id === id);
      expect(about).toEqual([{ webhook_id: calls[0]!.id, event: calls[0]!.event }]);
      expect(JSON.stringify(about[0]!.event)).toBe(calls[0]!.body);
      expect(calls.map(({ path }) => path).sort()).toEqual(["/failures", "/own"]);
    },
  ),
];
