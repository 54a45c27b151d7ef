import { randomBytes } from "node:crypto";
import { Webhook } from "standardwebhooks";
import { expect, test } from "vitest";
import { isAllowedCallback, nextTry, pausesMs, signedHeaders } from "./rules.ts";

const hourMs = 3_600_000;
const failure = { tries: 1, status: 500, retryAfter: null };

test("pauses grow from seconds to a day, three days in all; then there is no further try", () => {
  expect(pausesMs).toEqual(pausesMs.toSorted((a, b) => a - b));
  const inAllMs = pausesMs.reduce((sum, pause) => sum + pause, 0);
  expect(inAllMs / hourMs).toBeCloseTo(72, 0);
  expect(nextTry({ ...failure, tries: pausesMs.length }, 0, 0.5)).toBe(24 * hourMs);
  expect(nextTry({ ...failure, tries: pausesMs.length + 1 }, 0, 0.5)).toBeUndefined();
});

test("calls that failed at the same time are spread over a fifth of the pause", () => {
  const at = (random: number) => nextTry({ ...failure, tries: 4 }, 1000, random);
  expect([at(0), at(0.5), at(1)]).toEqual([541_000, 601_000, 661_000]);
});

test.each([
  ["120", 120_000],
  ["Thu, 01 Jan 1970 00:02:01 GMT", 120_000],
  ["1", 5000],
  ["999999999", 24 * hourMs],
  ["soon", 5000],
  ["-5", 5000],
])("Retry-After: %s delays the next try, but not for more than a day", (retryAfter, pauseMs) => {
  const after = nextTry({ tries: 1, status: 503, retryAfter }, 1000, 0.5);
  expect(after).toBe(1000 + pauseMs);
});

test("410 ends the delivery", () => {
  expect(nextTry({ ...failure, status: 410, retryAfter: "5" }, 0, 0)).toBeUndefined();
});

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

test.each([
  ["https://hooks.example/a?b=c", "hooks.example", true],
  ["https://HOOKS.example:443/", "hooks.example", true],
  ["https://hooks.example:8443/", "hooks.example", false],
  ["https://hooks.example:8443/", "hooks.example:8443", true],
  ["https://hooks.example/", "hooks.example:8443", false],
  ["http://hooks.example/", "hooks.example", false],
  ["http://hooks.example/", "http://hooks.example", true],
  ["https://hooks.example/", "http://hooks.example", false],
  ["http://127.0.0.1:9000/", "http://127.0.0.1:9000", true],
  ["http://2130706433:9000/", "http://127.0.0.1:9000", true],
  ["https://[::1]:9000/", "[::1]:9000", true],
  ["https://a.b.example/", "*.example", true],
  ["https://example/", "*.example", false],
  ["https://evilexample/", "*.example", false],
  ["https://hooks.example.evil.test/", "hooks.example", false],
  ["https://hooks.example@evil.test/", "hooks.example", false],
  ["https://hooks.example./", "hooks.example", false],
])("%s with the host %s: %s", (url, host, isAllowed) => {
  expect(isAllowedCallback(url, ["other.example", host])).toBe(isAllowed);
});
