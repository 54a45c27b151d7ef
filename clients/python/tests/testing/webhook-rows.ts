import { Webhook } from "standardwebhooks";
import { expect, test } from "vitest";
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
body, headers, secret, at = json.loads(sys.argv[1])
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
]))`;
    const given = JSON.stringify([body, headers, secret, signedAt.getTime() / 1000]);
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
    ]);
  });
}
