import { setImmediate } from "node:timers/promises";
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { FrameError } from "../sandbox/protocol/frames.ts";
import {
  encodeSwitchFrame,
  openChannel,
  type SwitchFrame,
  switchDecoder,
  windowBytes,
} from "./switch.ts";

const job = 7;

/** A channel, and what it has sent so far, decoded. */
function channelWithRecord() {
  const sent: SwitchFrame[] = [];
  const decode = switchDecoder();
  const channel = openChannel(job, (chunk: Uint8Array) => {
    sent.push(...decode(chunk));
    return true;
  });
  const dataOf = (frames: SwitchFrame[]): Buffer =>
    Buffer.concat(frames.filter(({ type }) => type === "D").map(({ payload }) => payload));
  return { ...channel, sent, data: () => dataOf(sent) };
}

const frame = (type: string, payload: Uint8Array = Buffer.alloc(0)): SwitchFrame => ({
  number: job,
  type,
  payload: Buffer.from(payload),
});

function credit(bytes: number): SwitchFrame {
  const word = Buffer.alloc(4);
  word.writeUInt32BE(bytes);
  return frame("C", word);
}

test("frames come out as they went in, however the stream is cut", () => {
  const frames = fc.array(
    fc.record({
      number: fc.nat(),
      type: fc.constantFrom("D", "C", "G"),
      payload: fc.uint8Array({ maxLength: 300 }),
    }),
  );
  fc.assert(
    fc.property(frames, fc.integer({ min: 1, max: 50 }), (all, size) => {
      const bytes = Buffer.concat(all.map((f) => encodeSwitchFrame(f.number, f.type, f.payload)));
      const decode = switchDecoder();
      const got: SwitchFrame[] = [];
      for (let at = 0; at < bytes.length; at += size)
        got.push(...decode(bytes.subarray(at, at + size)));
      const plain = (f: { number: number; type: string; payload: Uint8Array }) => [
        f.number,
        f.type,
        [...f.payload],
      ];
      expect(got.map(plain)).toEqual(all.map(plain));
    }),
  );
});

test("a frame over the limit is refused at its head", () => {
  const head = encodeSwitchFrame(1, "D").subarray(0, 9);
  head.writeUInt32BE(2 ** 30, 5);
  expect(() => switchDecoder()(head)).toThrow(FrameError);
});

describe("what goes to a job", () => {
  test("goes as far as the credit, and on with more of it, in order", async () => {
    const { link, take, sent, data } = channelWithRecord();
    const bytes = Buffer.from(Uint8Array.from({ length: 3 * windowBytes }, (_, at) => at % 251));
    link.input.write(bytes);
    await setImmediate();
    expect(data()).toEqual(bytes.subarray(0, windowBytes));
    take(credit(1000));
    expect(data()).toEqual(bytes.subarray(0, windowBytes + 1000));
    take(credit(3 * windowBytes));
    await setImmediate();
    expect(data().equals(bytes)).toBe(true);
    expect(sent.every(({ number }) => number === job)).toBe(true);
  });

  test("ends with the job: nothing waits for credit that never comes", async () => {
    const { link, take } = channelWithRecord();
    let isWritten = false;
    link.input.write(Buffer.alloc(2 * windowBytes), () => (isWritten = true));
    await setImmediate();
    expect(isWritten).toBe(false);
    take(frame("G"));
    await setImmediate();
    expect(isWritten).toBe(true);
  });
});

describe("what comes from a job", () => {
  test("is read in order, and only what was read gives credit", async () => {
    const { link, take, sent } = channelWithRecord();
    const half = Buffer.alloc(windowBytes / 2, "a");
    take(frame("D", half));
    take(frame("D", Buffer.from("b")));
    const output = link.output[Symbol.asyncIterator]();
    expect((await output.next()).value).toEqual(half);
    expect(sent).toEqual([]);
    expect((await output.next()).value).toEqual(Buffer.from("b"));
    expect(sent.map(({ type, payload }) => [type, payload.readUInt32BE(0)])).toEqual([
      ["C", windowBytes / 2],
    ]);
  });

  test("is read to its end before the end of the job is told", async () => {
    const { link, take } = channelWithRecord();
    take(frame("D", Buffer.from("last words")));
    take(frame("G"));
    const read: string[] = [];
    for await (const chunk of link.output) read.push(Buffer.from(chunk).toString("utf8"));
    expect(read).toEqual(["last words"]);
  });

  test("ends when the mother ends", async () => {
    const { link, take } = channelWithRecord();
    const next = link.output[Symbol.asyncIterator]().next();
    take(null);
    expect(await next).toMatchObject({ done: true });
  });

  test("is a fault where it is no frame of a job", () => {
    expect(() => channelWithRecord().take(frame("Z"))).toThrow(FrameError);
  });

  test("keeps the last words of its stderr, within a bound", () => {
    const { link, take } = channelWithRecord();
    take(frame("E", Buffer.from("x".repeat(10_000))));
    take(frame("E", Buffer.from("end")));
    expect(link.diagnostics()).toHaveLength(4096);
    expect(link.diagnostics()).toMatch(/end$/);
  });
});

test("a destroyed link kills its job once, and reads no more", async () => {
  const { link, take, sent } = channelWithRecord();
  take(frame("D", Buffer.from("unread")));
  link.destroy();
  link.destroy();
  take(frame("D", Buffer.from("late")));
  expect(sent.map(({ type }) => type)).toEqual(["K"]);
  expect(await link.output[Symbol.asyncIterator]().next()).toMatchObject({ done: true });
});
