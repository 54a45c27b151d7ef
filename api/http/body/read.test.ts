import { Hono } from "hono";
import { expect, onTestFinished, test, vi } from "vitest";
import { AppError, errorStatus } from "../../errors.ts";
import type { AppEnv } from "../context.ts";
import { dropRest, holdBytes, readBytes, unbounded } from "./read.ts";

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
