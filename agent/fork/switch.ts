import type { Duplex } from "node:stream";
import { Writable } from "node:stream";
import type { Link } from "../sandbox/protocol/link.ts";
import { FrameError } from "../sandbox/protocol/frames.ts";

/** Bytes that may be on their way for one job in one direction; python/mother.py has the same. */
export const windowBytes = 256 * 1024;
const pieceBytes = 32 * 1024;
const headBytes = 9;
const maxPayloadBytes = 1024 * 1024;
/** Bytes of a job's stderr that are kept for a diagnosis. */
const diagnosticBytes = 4096;

/** A frame of the mother's stream; python/mother.py lists the types. */
export interface SwitchFrame {
  /** Number of a job or a zygote; 0 for the mother itself. */
  readonly number: number;
  /** One ASCII letter. */
  readonly type: string;
  readonly payload: Buffer;
}

export function encodeSwitchFrame(
  number: number,
  type: string,
  payload: Uint8Array = Buffer.alloc(0),
): Buffer {
  const frame = Buffer.allocUnsafe(headBytes + payload.length);
  frame.writeUInt32BE(number, 0);
  frame.write(type, 4, "latin1");
  frame.writeUInt32BE(payload.length, 5);
  frame.set(payload, headBytes);
  return frame;
}

/** Returns a decoder for chunks that may be cut anywhere; it throws FrameError on a payload over the limit. */
export function switchDecoder(): (chunk: Uint8Array) => SwitchFrame[] {
  let pending: Buffer = Buffer.alloc(0);
  return (chunk) => {
    const bytes = Buffer.from(chunk.buffer, chunk.byteOffset, chunk.length);
    pending = pending.length === 0 ? bytes : Buffer.concat([pending, bytes]);
    const frames: SwitchFrame[] = [];
    while (pending.length >= headBytes) {
      const length = pending.readUInt32BE(5);
      if (length > maxPayloadBytes) throw new FrameError(`a frame of ${length} bytes`);
      if (pending.length < headBytes + length) break;
      frames.push({
        number: pending.readUInt32BE(0),
        type: pending.toString("latin1", 4, 5),
        payload: pending.subarray(headBytes, headBytes + length),
      });
      pending = pending.subarray(headBytes + length);
    }
    return frames;
  };
}

/** The agent's end of one job's bytes. */
export interface Channel {
  /** As if the job's PID 1 had a stream of its own. Its `destroy` kills the job. */
  readonly link: Link;
  /** Takes a frame of the job; the end of the mother is `null`. */
  readonly take: (frame: SwitchFrame | null) => void;
}

/** Opens the channel of a job: `send` writes to the mother's stream. */
export function openChannel(number: number, send: Duplex["write"]): Channel {
  let credit = windowBytes;
  let unconsumed: Buffer[] = [];
  let consumedBytes = 0;
  let diagnostics = "";
  let isOver = false;
  let wake: (() => void) | null = null;
  /** Bytes that wait for credit, and the callback for when they are sent. */
  let unsent: Buffer = Buffer.alloc(0);
  let whenSent: (() => void) | null = null;

  function pour(): void {
    while (credit > 0 && unsent.length > 0) {
      const piece = unsent.subarray(0, Math.min(credit, pieceBytes));
      credit -= piece.length;
      send(encodeSwitchFrame(number, "D", piece));
      unsent = unsent.subarray(piece.length);
    }
    if (unsent.length > 0 && !isOver) return;
    const told = whenSent;
    whenSent = null;
    told?.();
  }

  function put(bytes: Buffer, done: () => void): void {
    unsent = bytes;
    whenSent = done;
    pour();
  }

  const input = new Writable({
    write: (bytes: Buffer, _encoding, done) => put(bytes, done),
    writev: (chunks, done) => put(Buffer.concat(chunks.map(({ chunk }) => chunk as Buffer)), done),
  });
  input.on("error", () => {});

  /** Gives the job credit for what has been read. */
  function consume(bytes: number): void {
    consumedBytes += bytes;
    if (consumedBytes < windowBytes / 2 || isOver) return;
    const word = Buffer.alloc(4);
    word.writeUInt32BE(consumedBytes);
    consumedBytes = 0;
    send(encodeSwitchFrame(number, "C", word));
  }

  async function* output(): AsyncGenerator<Uint8Array> {
    for (;;) {
      const chunks = unconsumed;
      unconsumed = [];
      for (const chunk of chunks) {
        yield chunk;
        consume(chunk.length);
      }
      if (unconsumed.length > 0) continue;
      if (isOver) return;
      await new Promise<void>((resolve) => (wake = resolve));
    }
  }

  function end(): void {
    isOver = true;
    pour();
    wake?.();
  }

  return {
    link: {
      input,
      output: output(),
      diagnostics: () => diagnostics,
      destroy() {
        if (isOver) return;
        send(encodeSwitchFrame(number, "K"));
        unconsumed = [];
        end();
      },
    },
    take(frame) {
      if (frame === null || frame.type === "G") return end();
      switch (frame.type) {
        case "D":
          if (isOver) return;
          unconsumed.push(frame.payload);
          return wake?.();
        case "C":
          credit += frame.payload.readUInt32BE(0);
          return pour();
        case "E":
          diagnostics = (diagnostics + frame.payload.toString("utf8")).slice(-diagnosticBytes);
          return;
        default:
          throw new FrameError(`a frame ${frame.type} of a job`);
      }
    },
  };
}
