import { expect } from "vitest";
import { waitUntil } from "../../../shared/testing/wait-until.ts";
import { WebhookDelivery, WebhookDeliveryPage } from "../../../shared/wire/client/webhook.ts";
import { type Receiver, startReceiver } from "../receiver.ts";
import { type Api, body } from "./api.ts";
import type { Row } from "./row.ts";
import { receiverPort } from "./servers.ts";

export const server = "with webhooks";
export const own = `http://127.0.0.1:${receiverPort}`;

/** A row with a receiver of webhooks, which also gets the calls about jobs of earlier rows. */
export const withReceiver = (
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

export async function list(api: Api, query: string): Promise<WebhookDelivery[]> {
  const page = WebhookDeliveryPage.parse(body(await api.get(`/webhooks/deliveries?${query}`)));
  expect(page.count).toBe(page.items.length);
  return page.items;
}

/** The delivery of a job's only event, when it is as expected. */
export async function delivery(
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

export async function callsAbout(receiver: Receiver, id: string, count = 1) {
  const about = () => receiver.received.filter(({ event }) => event.data.job_id === id);
  while (about().length < count) await receiver.calls(receiver.received.length + 1);
  return about();
}

/** A job that has failed. */
export async function fail(api: Api, fields: object = {}): Promise<string> {
  const { job_id } = await api.submit({ ...fields });
  const agent = api.agent();
  let taken = await agent.takeJob();
  while (taken.execution_id !== job_id) taken = await agent.takeJob();
  const error = { type: "value_error", message: "bad input", phase: "execution" } as const;
  await agent.result(taken.lease_id, { status: "failed", exit_code: 1, error });
  return job_id;
}
