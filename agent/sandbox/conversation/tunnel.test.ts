import type { Duplex } from "node:stream";
import { expect, test } from "vitest";
import { encodeFrame, type Frame, FrameError, frameDecoder } from "../protocol/frames.ts";
import { openTunnel } from "./tunnel.ts";

const windowBytes = 256 * 1024;

function id(number: number, rest: Uint8Array = Buffer.alloc(0)): Buffer {
  const head = Buffer.alloc(4);
  head.writeUInt32BE(number);
  return Buffer.concat([head, rest]);
}
const count = (bytes: number): Buffer => id(bytes);
const settle = () => new Promise(setImmediate);

/** A tunnel whose other end is the test's; `said` are the frames that came out of it. */
function world() {
  const said: Frame[] = [];
  const streams: Duplex[] = [];
  const decode = frameDecoder();
  const tunnel = openTunnel(
    (frame) => said.push(...decode(frame)),
    (stream) => streams.push(stream),
  );
  const take = (type: string, payload: Buffer): void =>
    tunnel.take({ type, payload: frameDecoder()(encodeFrame(type, payload))[0]!.payload });
  const bytesOf = (type: string): number =>
    said
      .filter((frame) => frame.type === type)
      .reduce((sum, { payload }) => sum + payload.length - 4, 0);
  const passedOn = (): number =>
    said
      .filter(({ type }) => type === "w")
      .reduce((sum, { payload }) => sum + payload.readUInt32BE(4), 0);
  return { tunnel, said, streams, take, bytesOf, passedOn };
}

test("a connection sends, receives and ends", async () => {
  const { streams, take, said } = world();
  take("o", id(1));
  const [stream] = streams;
  const heard: Buffer[] = [];
  stream!.on("data", (chunk: Buffer) => heard.push(chunk));
  take("d", id(1, Buffer.from("question")));
  stream!.end("answer");
  await settle();
  take("e", id(1));
  await settle();
  expect(Buffer.concat(heard).toString()).toBe("question");
  expect(
    said
      .filter(({ type }) => type !== "w")
      .map(({ type, payload }) => [type, payload.toString("latin1", 4)]),
  ).toEqual([
    ["d", "answer"],
    ["e", ""],
    ["x", ""],
  ]);
});

test("data that nobody reads is not passed on, so that the other end stops", async () => {
  const { streams, take, passedOn } = world();
  take("o", id(1));
  const piece = Buffer.alloc(64 * 1024);
  for (let n = 0; n < windowBytes / piece.length; n += 1) take("d", id(1, piece));
  await settle();
  expect(passedOn()).toBeLessThanOrEqual(piece.length);
  expect(() => take("d", id(1, Buffer.alloc(windowBytes)))).toThrow(FrameError);
  streams[0]!.on("data", () => {});
  await settle();
  expect(passedOn()).toBeGreaterThanOrEqual(windowBytes);
});

test("no more is sent than the other end has room for", async () => {
  const { streams, take, bytesOf } = world();
  take("o", id(1));
  let isDone = false;
  streams[0]!.write(Buffer.alloc(windowBytes + 10), () => (isDone = true));
  await settle();
  expect([bytesOf("d"), isDone]).toEqual([windowBytes, false]);
  take("w", id(1, count(4)));
  expect(bytesOf("d")).toBe(windowBytes + 4);
  take("w", id(1, count(1000)));
  await settle();
  expect([bytesOf("d"), isDone]).toEqual([windowBytes + 10, true]);
});

test("either side may end a connection, and closing the tunnel ends all", async () => {
  const { tunnel, streams, take, said } = world();
  for (const number of [1, 2, 3]) take("o", id(number));
  take("x", id(1));
  streams[1]!.destroy();
  await settle();
  expect(said.map(({ type, payload }) => [type, payload.readUInt32BE(0)])).toEqual([["x", 2]]);
  tunnel.close();
  await settle();
  expect(streams.every(({ destroyed }) => destroyed)).toBe(true);
  // Frames that arrive after the end are not an error.
  for (const number of [1, 2, 3]) take("d", id(number, Buffer.from("late")));
});

test.each<[string, (take: (type: string, payload: Buffer) => void) => void]>([
  ["no complete number", (take) => take("o", Buffer.alloc(3))],
  ["an open connection opened again", (take) => take("o", id(1))],
  ["a connection with a number out of order", (take) => take("o", id(7))],
  ["a connection that was never opened", (take) => take("d", id(2, Buffer.from("x")))],
  ["an unknown type", (take) => take("q", id(1))],
  ["a window beyond its size", (take) => take("w", id(1, count(1)))],
  [
    "more data than its window",
    (take) => [1, 2].forEach(() => take("d", id(1, Buffer.alloc(200_000)))),
  ],
  ["too many connections", (take) => Array.from({ length: 64 }, (_, n) => take("o", id(n + 2)))],
])("a frame with %s is refused", (_, lie) => {
  const { take } = world();
  take("o", id(1));
  expect(() => lie(take)).toThrow(FrameError);
});
