import { expect, test } from "vitest";
import { dropRest, readBytes } from "./read.ts";

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
  const request = new Request("http://localhost", { method: "POST", body, duplex: "half" });
  const bytes = await readBytes(request, 100_000);
  expect(bytes.length).toBe(100_000);
  expect(bytes.every((byte, n) => byte === (100_000 - n) % 251)).toBe(true);
});
