import * as fc from "fast-check";
import { expect, test } from "vitest";
import {
  encodeFrame,
  engineDemux,
  type Frame,
  frameDecoder,
  FrameError,
  maxPayloadBytes,
} from "./frames.ts";

const letter = fc.constantFrom("J", "C", "G", "R", "O", "X", "A", "D", "Z");
const frames = fc.array(fc.record({ type: letter, payload: fc.uint8Array({ maxLength: 300 }) }));

/** Cuts `bytes` at the given places, in any order and of any size. */
function cut(bytes: Uint8Array, places: number[]): Uint8Array[] {
  const at = places.map((place) => place % (bytes.length + 1)).sort((a, b) => a - b);
  return [0, ...at].map((start, i) => bytes.subarray(start, at[i] ?? bytes.length));
}

test("frames arrive as they were sent, however the stream is split", () => {
  fc.assert(
    fc.property(frames, fc.array(fc.nat()), (sent, places) => {
      const bytes = Buffer.concat(sent.map(({ type, payload }) => encodeFrame(type, payload)));
      const decode = frameDecoder();
      const got = cut(bytes, places).flatMap((chunk) => decode(chunk));
      expect(got.map(({ type, payload }) => ({ type, payload: [...payload] }))).toEqual(
        sent.map(({ type, payload }) => ({ type, payload: [...payload] })),
      );
    }),
  );
});

test("data in pieces has the bytes that were sent, and none of them wait for more", () => {
  const plain = ({ type, payload }: { type: string; payload: Uint8Array }): string[] =>
    type === "D" && payload.length > 0
      ? [...payload].map((byte) => `D ${byte}`)
      : [`${type} ${[...payload].join()}`];
  fc.assert(
    fc.property(
      frames,
      fc.array(fc.nat()),
      fc.uint8Array({ minLength: 1 }),
      (sent, places, last) => {
        const all = [...sent, { type: "D", payload: last }];
        const bytes = Buffer.concat(all.map(({ type, payload }) => encodeFrame(type, payload)));
        const decode = frameDecoder("D");
        const got = cut(bytes.subarray(0, -1), places).flatMap((chunk) => decode(chunk));
        expect([...got.flatMap(plain), `D ${last.at(-1)}`]).toEqual(all.flatMap(plain));
      },
    ),
  );
});

test("a frame over the limit is refused at its head", () => {
  const decode = frameDecoder();
  const head = encodeFrame("O").subarray(0, 5);
  head.writeUInt32BE(maxPayloadBytes + 1, 1);
  expect(() => decode(head)).toThrow(FrameError);
});

test("garbage is refused, after at most one frame's length", () => {
  fc.assert(
    fc.property(fc.array(fc.uint8Array({ minLength: 1, maxLength: 2000 })), (chunks) => {
      const decode = frameDecoder();
      let heldBytes = 0;
      for (const chunk of chunks) {
        heldBytes += chunk.length;
        const got = decodeOrRefuse(decode, chunk);
        if (got === "refused") return;
        for (const { payload } of got) heldBytes -= payload.length + 5;
      }
      expect(heldBytes).toBeLessThan(maxPayloadBytes + 5);
    }),
  );
});

function decodeOrRefuse(decode: (chunk: Uint8Array) => Frame[], chunk: Uint8Array) {
  try {
    return decode(chunk);
  } catch (error) {
    if (error instanceof FrameError) return "refused";
    throw error;
  }
}

const outputs = fc.array(
  fc.record({
    stream: fc.constantFrom("stdout", "stderr"),
    bytes: fc.uint8Array({ maxLength: 300 }),
  }),
);

function engineRecord({ stream, bytes }: { stream: string; bytes: Uint8Array }): Buffer {
  const head = Buffer.alloc(8);
  head[0] = stream === "stderr" ? 2 : 1;
  head.writeUInt32BE(bytes.length, 4);
  return Buffer.concat([head, bytes]);
}

/** Each byte with its stream: where one piece ends and the next begins says nothing. */
function inOrder(output: { stream: string; bytes: Uint8Array }[]): string[] {
  return output.flatMap(({ stream, bytes }) => [...bytes].map((byte) => `${stream} ${byte}`));
}

test("the engine's two streams are told apart, however the bytes are split", () => {
  fc.assert(
    fc.property(outputs, fc.array(fc.nat()), (sent, places) => {
      const demux = engineDemux();
      const got = cut(Buffer.concat(sent.map(engineRecord)), places).flatMap((c) => demux(c));
      expect(inOrder(got)).toEqual(inOrder(sent));
    }),
  );
});

test("a frame that arrives whole is not copied, and no piece is", () => {
  const chunk = Buffer.concat([encodeFrame("D", Buffer.alloc(1000)), encodeFrame("Z")]);
  const [frame] = frameDecoder()(chunk);
  expect(frame?.payload.buffer).toBe(chunk.buffer);
  const decode = frameDecoder("D");
  decode(chunk.subarray(0, 500));
  const rest = Buffer.from(chunk.subarray(500));
  expect(decode(rest)[0]?.payload.buffer).toBe(rest.buffer);
  const record = engineRecord({ stream: "stdout", bytes: new Uint8Array(1000) });
  const [output] = engineDemux()(record.subarray(0, 500));
  expect(output?.bytes.buffer).toBe(record.buffer);
});

test.each([
  ["a stream number that does not exist", [3, 0, 0, 0, 0, 0, 0, 0]],
  ["padding that is not zero", [1, 0, 7, 0, 0, 0, 0, 0]],
  ["a length over the limit", [1, 0, 0, 0, 0xff, 0, 0, 0]],
])("the demultiplexer refuses %s", (_what, head) => {
  expect(() => engineDemux()(Uint8Array.from(head))).toThrow(FrameError);
});
