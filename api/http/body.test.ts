import { createRoute, OpenAPIHono, z } from "@hono/zod-openapi";
import { Hono } from "hono";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { jsonRequest } from "../../scripts/operate/command.ts";
import { atMost } from "../../shared/wire/fields.ts";
import { createApp } from "../app.ts";
import { AppError, errorStatus } from "../errors.ts";
import { testDeps } from "../testing/temp-store.ts";
import { store, useStore } from "../testing/use-store.ts";
import {
  dropRest,
  type FormFile,
  holdBytes,
  optionalJsonBody,
  readBytes,
  readForm,
  unbounded,
} from "./body.ts";
import type { AppEnv } from "./context.ts";

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
    const post = app.request(path, jsonRequest("POST", body));
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

const MiB = 1024 * 1024;

/** An app that reads a body, and answers when it is told to. */
function createReader(most: { each: number; all: number }) {
  const answers = Promise.withResolvers<void>();
  const app = new Hono<AppEnv>();
  app.use(holdBytes((c) => c.req.header("X-Client") ?? "", { bodies: most, answers: unbounded }));
  app.onError((error, c) =>
    error instanceof AppError
      ? c.text(error.message, errorStatus[error.code], error.headers)
      : c.text(String(error), 500),
  );
  app.post("/", async (c) => {
    const bytes = await readBytes(c, 100 * MiB);
    if (c.req.query("held") !== undefined) await answers.promise;
    return c.body(bytes);
  });
  const send = async (
    client: string,
    body: Uint8Array<ArrayBuffer> | ReadableStream,
    path = "/",
  ) => {
    const headers = new Headers({ "X-Client": client });
    if (body instanceof Uint8Array) headers.set("Content-Length", String(body.length));
    return app.request(path, { method: "POST", headers, body, duplex: "half" });
  };
  const ask = async (client: string, bytes: number) =>
    (await send(client, new Uint8Array(bytes))).status;
  return { send, ask, answers };
}

test("dropping ends with the body", async () => {
  const parts = (async function* () {
    yield new Uint8Array(10);
    yield new Uint8Array(10);
  })();
  await dropRest(parts, { bytes: 1000, ms: 60_000 });
  expect(await parts.next()).toEqual({ done: true, value: undefined });
});

test("dropping ends after the given number of bytes of a longer body", async () => {
  let given = 0;
  const parts = (async function* () {
    for (;;) {
      given += 10;
      yield new Uint8Array(10);
    }
  })();
  await dropRest(parts, { bytes: 100, ms: 60_000 });
  expect(given).toBe(100);
});

test("dropping ends after the given time if no more bytes arrive", async () => {
  const stalled = new ReadableStream<Uint8Array>();
  await dropRest(stalled.values(), { bytes: 100, ms: 10 });
  expect(stalled.locked).toBe(true);
});

test("dropping ends if the body breaks off", async () => {
  // oxlint-disable-next-line require-yield -- it breaks off before its first part
  const parts = (async function* (): AsyncGenerator<Uint8Array> {
    throw new Error("aborted");
  })();
  await expect(dropRest(parts, { bytes: 100, ms: 60_000 })).resolves.toBeUndefined();
});

test("a body's parts are copied when they arrive, not kept", async () => {
  const part = new Uint8Array(1);
  let left = 100_000;
  const body = new ReadableStream<Uint8Array>(
    {
      pull(controller) {
        part[0] = left % 251;
        controller.enqueue(part);
        if (--left === 0) controller.close();
      },
    },
    { highWaterMark: 0 },
  );
  const answer = await createReader({ each: MiB, all: MiB }).send("a", body);
  const bytes = new Uint8Array(await answer.arrayBuffer());
  expect(bytes.length).toBe(100_000);
  expect(bytes.every((byte, n) => byte === (100_000 - n) % 251)).toBe(true);
});

test.each([
  ["with a length", (bytes: number) => new Uint8Array(bytes)],
  ["without one", (bytes: number) => new Blob([new Uint8Array(bytes)]).stream()],
])(
  "bodies %s are refused when those of their client, or of all, would have too many bytes",
  async (_how, body) => {
    const { send, ask, answers } = createReader({ each: 4 * MiB, all: 8 * MiB });
    const held = [
      send("a", body(4 * MiB), "/?held"),
      send("b", body(2 * MiB), "/?held"),
      send("c", body(MiB), "/?held"),
    ];
    await new Promise((resolve) => setTimeout(resolve));
    const refused = await send("a", body(MiB));
    expect([refused.status, refused.headers.get("Retry-After")]).toEqual([503, "1"]);
    expect(await refused.text()).toContain("The bodies of your requests");
    const full = await send("d", body(2 * MiB));
    expect([full.status, await full.text()]).toEqual([
      503,
      expect.stringContaining("of all requests"),
    ]);
    expect([await ask("a", 64 * 1024), await ask("d", 64 * 1024), await ask("d", MiB)]).toEqual([
      200, 200, 200,
    ]);
    answers.resolve();
    await Promise.all(held);
    expect([await ask("a", 4 * MiB), await ask("d", 4 * MiB)]).toEqual([200, 200]);
  },
);

test("small bodies have a bound, too", async () => {
  const { send, answers } = createReader({ each: MiB, all: MiB });
  const held = Array.from({ length: 300 }, async () =>
    send("a", new Uint8Array(64 * 1024), "/?held"),
  );
  await new Promise((resolve) => setTimeout(resolve));
  answers.resolve();
  const statuses = (await Promise.all(held)).map(({ status }) => status);
  expect(statuses.filter((status) => status === 200).length).toBe((MiB + 16 * MiB) / (64 * 1024));
});

test("bodies that are dropped at once share their pace, and end after the given time", async () => {
  vi.useFakeTimers();
  onTestFinished(() => void vi.useRealTimers());
  let given = 0;
  async function* parts() {
    for (; ; given++) yield new Uint8Array(1);
  }
  const all = Array.from({ length: 20 }, async () =>
    dropRest(parts(), { bytes: 10_000, ms: 1000 }),
  );
  await vi.advanceTimersByTimeAsync(1050);
  await Promise.all(all);
  expect(given).toBeGreaterThan(900);
  expect(given).toBeLessThan(1100);
});

test("what is dropped of a refused body is not kept until its end", async () => {
  let most = 0;
  async function* parts() {
    for (let n = 0; n < 1024; n++) {
      yield new Uint8Array(MiB);
      await new Promise(setImmediate);
      most = Math.max(most, process.memoryUsage().arrayBuffers);
    }
  }
  const before = process.memoryUsage().arrayBuffers;
  await dropRest(parts(), { bytes: 1024 * MiB, ms: 600_000 });
  expect(most - before).toBeLessThan(512 * MiB);
});
