import { Webhook } from "standardwebhooks";
import { expect, test } from "vitest";
import { verifyWebhook, WebhookError } from "../src/index.ts";

const [oldSecret, secret] = ["old", "new"].map(
  (name) => `whsec_${Buffer.from(`${name} secret of 32 bytes`.padEnd(32, "+")).toString("base64")}`,
) as [string, string];
const body = '{"type":"execution.succeeded","timestamp":"2026-11-22T00:00:00Z","data":{"ü":1}}';
const now = new Date("2026-11-22T00:00:10Z");

function sign(secrets: string[], at = now): Record<string, string> {
  const signatures = secrets.map((one) => new Webhook(one).sign("msg_1", at, body));
  return {
    "webhook-id": "msg_1",
    "webhook-timestamp": String(at.getTime() / 1000),
    "webhook-signature": signatures.join(" "),
  };
}
const options = { nowMs: now.getTime() };

test("what the reference library signs is verified, with either secret of a rotation", async () => {
  for (const secrets of [secret, [secret], [oldSecret, secret]]) {
    const event = await verifyWebhook(body, sign([secret]), secrets, options);
    expect(event).toMatchObject({ type: "execution.succeeded", data: { ü: 1 } });
  }
  const bytes = new TextEncoder().encode(body);
  await verifyWebhook(bytes, new Headers(sign([oldSecret, secret])), secret, options);
  await verifyWebhook(body, { ...sign([secret]), "Webhook-Id": ["msg_1"] }, secret, options);
});

test.each([
  ["another body", "{}", sign([secret]), "No signature"],
  ["another secret", body, sign([oldSecret]), "No signature"],
  ["another id", body, { ...sign([secret]), "webhook-id": "msg_2" }, "No signature"],
  ["an old delivery", body, sign([secret], new Date("2026-11-21T23:55:00Z")), "more than 300 s"],
  ["a future delivery", body, sign([secret], new Date("2026-11-22T00:05:11Z")), "more than 300 s"],
  ["no time", body, { ...sign([secret]), "webhook-timestamp": "x" }, "more than 300 s"],
  ["no signature", body, { ...sign([secret]), "webhook-signature": "" }, "is missing"],
  ["another version", body, { ...sign([secret]), "webhook-signature": "v2,AA==" }, "No signature"],
  ["no Base64", body, { ...sign([secret]), "webhook-signature": "v1,*" }, "No signature"],
])("%s is refused", async (_, text, headers, message) => {
  const verified = verifyWebhook(text, headers, secret, options);
  await expect(verified).rejects.toThrow(WebhookError);
  await expect(verified).rejects.toThrow(message);
});
