import { randomBytes } from "node:crypto";
import { Webhook } from "standardwebhooks";
import { expect, test } from "vitest";
import { signedHeaders } from "./signature.ts";

const secret = (bytes: number) => `whsec_${randomBytes(bytes).toString("base64")}`;
const body = '{"type":"execution.succeeded","data":{"metadata":{"name":"é 😀"}}}';
const call = { id: "evt_1", timestamp: Math.floor(Date.now() / 1000), body };

test.each([24, 32, 33, 64])(
  "the reference library accepts a signature with a secret of %i bytes",
  async (bytes) => {
    const own = secret(bytes);
    const headers = await signedHeaders(call, [own]);
    expect(new Webhook(own).verify(body, headers)).toEqual(JSON.parse(body));
    expect(headers["webhook-signature"]).toBe(
      new Webhook(own).sign(call.id, new Date(call.timestamp * 1000), body),
    );
  },
);

test("while secrets rotate, a receiver needs one of both", async () => {
  const [old, next] = [secret(32), secret(32)];
  const headers = await signedHeaders(call, [old, next]);
  for (const one of [old, next]) new Webhook(one).verify(body, headers);
  expect(() => new Webhook(secret(32)).verify(body, headers)).toThrow("No matching signature");
});

test("the reference library refuses another body, id or time", async () => {
  const own = secret(32);
  const headers = await signedHeaders(call, [own]);
  const verify = (text: string, changes: object) =>
    new Webhook(own).verify(text, { ...headers, ...changes });
  expect(() => verify(`${body} `, {})).toThrow("No matching signature");
  expect(() => verify(body, { "webhook-id": "evt_2" })).toThrow("No matching signature");
  const later = String(call.timestamp + 1);
  expect(() => verify(body, { "webhook-timestamp": later })).toThrow("No matching signature");
});
