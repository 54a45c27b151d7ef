import { createRoute, OpenAPIHono, z } from "@hono/zod-openapi";
import { describe, expect, test } from "vitest";
import { atMost } from "../../../shared/wire/json-object.ts";
import { createApp } from "../../app.ts";
import { store, useStore } from "../../testing/use-store.ts";
import { testDeps } from "../../testing/test-deps.ts";
import type { AppEnv } from "../context.ts";
import { type FormFile, optionalJsonBody, readForm } from "./json.ts";
import { holdBytes, unbounded } from "./read.ts";

const app = new OpenAPIHono<AppEnv>();
app.use(holdBytes(() => "anybody", { bodies: { each: 100, all: 100 }, answers: unbounded }));
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

test.each([
  ["an array", Array.from({ length: 11 }, () => "a"), Array.from({ length: 10 }, () => "a")],
  ["an object", Object.fromEntries(Array.from({ length: 11 }, (_, n) => [n, "a"])), { a: "a" }],
])("the entries of %s are counted before any of them is looked at", (_what, many, few) => {
  let looks = 0;
  const entry = z.string().refine(() => ++looks > 0);
  const schema = atMost(10, z.union([z.array(entry), z.record(z.string(), entry)])).optional();
  const refused = schema.safeParse(many);
  expect(refused.error?.issues).toMatchObject([
    { path: [], message: "must have at most 10 entries" },
  ]);
  expect(looks).toBe(0);
  expect(schema.parse(few)).toEqual(few);
  expect(looks).toBeGreaterThan(0);
});

describe("while the service reads and hashes a large request", () => {
  useStore();

  const values = `[${"{},".repeat(900_000)}{}]`;
  test.each([
    ["a job", "/execute/async", `{"code":"1","input_data":{"a":${values}}}`, 202],
    ["a batch", "/execute/batch", `{"jobs":[{"code":"1","input_data":{"a":${values}}}]}`, 202],
    ["an invalid one", "/execute/async", `{"code":"1","input_data":{"a":${values},"b":[}}`, 400],
  ])("it answers others: %s", async (_what, path, body, status) => {
    const app = createApp(
      testDeps(store.db, store.folder, Date.now, { api_rate_limit_enabled: false }),
    );
    const post = app.request(path, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body,
    });
    const ended = new AbortController();
    const done = Promise.resolve(post).finally(() => ended.abort());
    let others = 0;
    for (; !ended.signal.aborted; others++) {
      await new Promise(setImmediate);
      expect((await app.request("/none")).status).toBe(404);
    }
    expect((await done).status).toBe(status);
    expect(others).toBeGreaterThan(10);
  });
});

describe("a form", () => {
  const read = async (form: FormData | string, type?: string) => {
    const { body, headers } = new Response(form);
    const contentType = type ?? headers.get("Content-Type") ?? "";
    const request = new Request("http://localhost/", {
      method: "POST",
      headers: { "Content-Type": contentType },
      body,
      duplex: "half",
    });
    const files = Promise.withResolvers<FormFile[]>();
    const reader = new OpenAPIHono<AppEnv>();
    reader.use(holdBytes(() => "anybody", { bodies: unbounded, answers: unbounded }));
    reader.post("/", async (c) => {
      await readForm(c, 1_000_000).then(files.resolve, files.reject);
      return c.body(null);
    });
    await reader.request(request);
    return files.promise;
  };

  test("gives its files, byte for byte and in order", async () => {
    const contents = ["", "a", "\r\n", "--", "\r\n--x\r\n\r\n", "\0é\u{feff}".repeat(100)];
    const names = ["a.txt", 'in/"b" %.csv', "é 日本 😀", "c;d=e.csv", "x\r\ny", "f"];
    const form = new FormData();
    form.append("kind", "user");
    contents.forEach((text, n) => form.append("file", new Blob([text]), names[n]));
    const files = await read(form);
    expect(files.map(({ name }) => name)).toEqual(names);
    expect(
      files.map(({ bytes }) => new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes)),
    ).toEqual(contents);
  });

  const part = (disposition: string, text: string) =>
    `--x\r\nContent-Type: text/plain\r\nContent-Disposition: form-data; ${disposition}\r\n\r\n${text}\r\n`;
  const type = "multipart/form-data; boundary=x";

  test.each([
    ['name=f; filename="a"', "a"],
    ["name=\"f\"; filename*=UTF-8''%C3%A9.csv", "é.csv"],
  ])("has the name of a file from %s", async (disposition, name) => {
    const [file] = await read(`before\r\n${part(disposition, "1")}--x--\r\nafter`, type);
    expect([file?.name, new TextDecoder().decode(file?.bytes)]).toEqual([name, "1"]);
  });

  test("may have 1,000 parts", async () => {
    const parts = (count: number) =>
      `${part('name="a"; filename="b"', "1").repeat(count)}--x--\r\n`;
    expect(await read(parts(1000), type)).toHaveLength(1000);
    await expect(read(parts(1001), type)).rejects.toThrow("The form must have at most 1000 parts.");
  });

  test.each([
    ["nothing", "", type],
    ["no part", "--x--", type],
    ["a part without a header", "--x\r\nno header\r\n--x--", type],
    ["a part without a disposition", "--x\r\n\r\n1\r\n--x--", type],
    ["a long header", `${part(`name="${"n".repeat(20_000)}"`, "1")}--x--`, type],
    ["no boundary", `${part('name="a"', "1")}--x--`, "multipart/form-data"],
    ["another type", `${part('name="a"', "1")}--x--`, "text/plain; boundary=x"],
  ])("that is none is refused: %s", async (_what, text, given) => {
    await expect(read(text, given)).rejects.toThrow("The body is not multipart/form-data.");
  });
});
