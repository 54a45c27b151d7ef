import { createHmac } from "node:crypto";
import { Webhook } from "standardwebhooks";
import { expect, test } from "vitest";
import { receiverSecret } from "../../../../api/testing/receiver.ts";
import { otherSecret, receiveDelivery, wrongSecret } from "../../../testing/real-delivery.ts";
import type { PythonClient } from "../../../testing/python-client.ts";

const secret = `whsec_${Buffer.from("a secret of thirty-two bytes ++++").toString("base64")}`;
const body = '{"type":"execution.succeeded","data":{"ü":1}}';
const signedAt = new Date("2026-11-22T00:00:00Z");

/** What must hold of deliveries. */
export function webhookRows(python: PythonClient): void {
  test("what the reference library signs is verified, and nothing else", async () => {
    const signature = new Webhook(secret).sign("msg_1", signedAt, body);
    const headers = {
      "Webhook-Id": "msg_1",
      "webhook-timestamp": String(signedAt.getTime() / 1000),
      "webhook-signature": `v1,AAAA v2,x ${signature}`,
    };
    const program = `
body, headers, secret, at, forged = json.loads(sys.argv[1])
def told(*args, now=at):
    try:
        return airlock.verify_webhook(*args, now=now)["type"]
    except airlock.WebhookError as error:
        return str(error)[:12]
print(json.dumps([
    told(body, headers, secret),
    told(body.encode(), headers, ["whsec_" + "A" * 32, secret]),
    told(body + " ", headers, secret),
    told(body, headers, "whsec_" + "A" * 32),
    told(body, {**headers, "Webhook-Id": "msg_2"}, secret),
    told(body, headers, secret, now=at + 301),
    told(body, {**headers, "webhook-timestamp": "x"}, secret),
    told(body, {}, secret),
    told(body, headers, "whsec_*"),
    told(body, headers, "whsec_…"),
    told(body, {**headers, "webhook-timestamp": "9" * 400}, secret),
    told(body, {**headers, "webhook-signature": "v1,\\udcff"}, secret),
    told(body, {**headers, "webhook-id": "\\udcff"}, secret),
    told(body + "\\udcff", headers, secret),
    # Anybody can sign with an empty key.
    told(body, {**headers, "webhook-signature": forged}, ["", secret]),
]))`;
    const at = signedAt.getTime() / 1000;
    const mac = createHmac("sha256", "").update(`msg_1.${at}.${body}`).digest("base64");
    const given = JSON.stringify([body, headers, secret, at, `v1,${mac}`]);
    expect(await python.run(program, given)).toEqual([
      "execution.succeeded",
      "execution.succeeded",
      "No signature",
      "No signature",
      "No signature",
      "webhook-time",
      "webhook-time",
      "The header w",
      "A secret is ",
      "A secret is ",
      "webhook-time",
      "No signature",
      "No signature",
      "No signature",
      "A secret is ",
    ]);
  });

  test("a delivery of the service is verified, with each of the secrets that rotate; no other is", async () => {
    const single = await receiveDelivery();
    const rotating = await receiveDelivery([receiverSecret, otherSecret]);
    const program = `
given = json.loads(sys.argv[1])
def told(delivery, secrets, late_s=0, more=""):
    headers, body = delivery["headers"], delivery["body"] + more
    now = int(headers["webhook-timestamp"]) + late_s
    try:
        return airlock.verify_webhook(body.encode(), headers, secrets, now=now) == delivery["event"]
    except airlock.WebhookError as error:
        return str(error)[:12]
main, other, wrong = given["secrets"]
print(json.dumps([
    [
        told(one, main), told(one, [other, main]), told(one, other), told(one, wrong),
        told(one, main, late_s=301), told(one, main, more=" "),
    ]
    for one in given["deliveries"]
]))`;
    const secrets = [receiverSecret, otherSecret, wrongSecret];
    const given = JSON.stringify({ deliveries: [single, rotating], secrets });
    const refused = ["No signature", "webhook-time", "No signature"];
    expect(await python.run(program, given)).toEqual([
      [true, true, "No signature", ...refused],
      [true, true, true, ...refused],
    ]);
  });
}
