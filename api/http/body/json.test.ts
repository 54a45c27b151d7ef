import { createRoute, OpenAPIHono, z } from "@hono/zod-openapi";
import { expect, test } from "vitest";
import type { AppEnv } from "../context.ts";
import { optionalJsonBody } from "./json.ts";

const app = new OpenAPIHono<AppEnv>();
const route = createRoute({
  method: "post",
  path: "/",
  middleware: optionalJsonBody(100),
  request: {
    body: { content: { "application/json": { schema: z.object({ a: z.int().default(7) }) } } },
  },
  responses: { 200: { description: "What was sent." } },
});
app.openapi(route, (c) => c.json(c.req.valid("json")));
app.onError((error, c) => c.text(error.message, 400));

const json = { "Content-Type": "application/json" };

test.for<[title: string, init: RequestInit, answer: string]>([
  ["no body", {}, '{"a":7}'],
  [
    "a body that may come, and does not",
    { body: new Blob([]).stream(), duplex: "half" },
    '{"a":7}',
  ],
  ["a body of no bytes", { body: "", headers: json }, '{"a":7}'],
  ["a body of no bytes that is a form", { body: new URLSearchParams() }, '{"a":7}'],
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
