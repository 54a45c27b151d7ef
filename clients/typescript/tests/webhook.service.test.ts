import { expect, test } from "vitest";
import { receiverSecret } from "../../../api/testing/receiver.ts";
import { otherSecret, receiveDelivery, wrongSecret } from "../../testing/real-delivery.ts";
import { verifyWebhook } from "../src/index.ts";

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
