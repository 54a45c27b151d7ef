import { expect } from "vitest";
import { WebhookEventPage } from "../../../shared/wire/client/webhook.ts";
import { type Api, body, expectFault } from "./api.ts";
import { callsAbout, fail, list, own, withReceiver } from "./receiving.ts";
import { each, type Row } from "./row.ts";

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
  {
    rule: "Without any receiver, a client that listens gets every later end of an execution once, in order, as a receiver would",
    async check(api) {
      const { cursor, items } = await events(api);
      expect(items).toEqual([]);
      const metadata = { order: "4711" };
      const { job_id } = await api.submit({ metadata });
      await api.post(`/jobs/${job_id}/cancel`);
      const failed = await fail(api);
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
    },
  },
  {
    rule: "A request that waits for events is answered when a job ends, and says how soon to ask again",
    async check(api) {
      const { cursor } = await events(api);
      const { job_id } = await api.submit();
      const waiting = events(api, `after=${cursor}&wait=20`);
      await api.post(`/jobs/${job_id}/cancel`);
      const { items, listening_s } = await waiting;
      expect(items).toMatchObject([{ webhook_id: `evt_${job_id}` }]);
      expect(listening_s).toBeGreaterThan(0);
      expect(listening_s).toBeLessThanOrEqual(140);
    },
  },
  {
    rule: "A client whose cursor is from another database gets the newest one at once, and later ends with it",
    async check(api) {
      const { cursor } = await events(api);
      const answer = await events(api, "after=999999999999999&wait=1");
      expect(answer.items).toEqual([]);
      expect(Number(answer.cursor)).toBeGreaterThanOrEqual(Number(cursor));
      expect(Number(answer.cursor)).toBeLessThan(999999999999999);
      const id = await fail(api);
      const { items } = await eventsUpTo(api, id, answer.cursor);
      expect(items.at(-1)).toMatchObject({ webhook_id: `evt_${id}` });
    },
  },
  withReceiver(
    "A client that listens also gets the events of configured receivers; these are still called once",
    async (api, receiver) => {
      const { cursor } = await events(api);
      const id = await fail(api, { callback_url: `${own}/own` });
      const calls = await callsAbout(receiver, id, 2);
      const { items } = await eventsUpTo(api, id, cursor);
      const about = items.filter(({ event }) => event.data.job_id === id);
      expect(about).toEqual([{ webhook_id: calls[0]!.id, event: calls[0]!.event }]);
      expect(JSON.stringify(about[0]!.event)).toBe(calls[0]!.body);
      expect(calls.map(({ path }) => path).sort()).toEqual(["/failures", "/own"]);
    },
  ),
  ...each(
    [
      ["after=x", "after"],
      ["after=-1", "after"],
      ["wait=21", "wait"],
      ["limit=0", "limit"],
    ] as const,
    ([query]) => `GET /webhooks/events?${query} is 400 at that path`,
    async (api, [query, path]) => expectFault(await api.get(`/webhooks/events?${query}`), path),
  ),
];
