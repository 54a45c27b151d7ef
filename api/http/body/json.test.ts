import { Hono } from "hono";
import { expect, test } from "vitest";
import { optionalJsonBody } from "./json.ts";

const app = new Hono().post("/", optionalJsonBody(100), async (c) => c.json(await c.req.json()));
app.onError((error, c) => c.text(error.message, 400));

const json = { "Content-Type": "application/json" };

test.for<[title: string, init: RequestInit, answer: string]>([
  ["no body", {}, "{}"],
  ["a body of no bytes", { body: "", headers: json }, "{}"],
  ["a body without Content-Length", { body: '{"a":1}', headers: json }, '{"a":1}'],
  [
    "a body of another type",
    { body: '{"a":1}' },
    "Send the body as Content-Type: application/json.",
  ],
])("an optional body: %s", async ([, init, answer]) => {
  const reply = await app.request("/", { method: "POST", ...init });
  expect(await reply.text()).toBe(answer);
});
