import type { OutputPart, StreamName } from "../../shared/wire/output.ts";

/** Output that has not been posted yet, in the order in which the code wrote it. */
export type Unsent = {
  readonly add: (stream: StreamName, bytes: Uint8Array) => void;
  readonly isEmpty: () => boolean;
  /** Takes what fits into one post; null if there is nothing. */
  readonly take: () => OutputPart[] | null;
};

const POST_MAX_BYTES = 256 * 1024;
const POST_MAX_PARTS = 1000;

/** Code may change the stream at every byte, so a change costs one number and no object. */
export function createUnsent(): Unsent {
  const waiting = { stdout: createByteQueue(), stderr: createByteQueue() };
  const sent = { stdout: 0, stderr: 0 };
  /** Bytes of each part in order, negative for stderr; those before `next` are taken. */
  let runs: number[] = [];
  let next = 0;

  function add(stream: StreamName, bytes: Uint8Array): void {
    if (bytes.length === 0) return;
    waiting[stream].add(bytes);
    const run = stream === "stdout" ? bytes.length : -bytes.length;
    const last = runs.length - 1;
    if (last >= next && runs[last]! > 0 === run > 0) runs[last]! += run;
    else runs.push(run);
  }

  function take(): OutputPart[] | null {
    const parts: OutputPart[] = [];
    let room = POST_MAX_BYTES;
    while (next < runs.length && room > 0 && parts.length < POST_MAX_PARTS) {
      const run = runs[next]!;
      const stream = run > 0 ? "stdout" : "stderr";
      const length = Math.min(Math.abs(run), room);
      const data_base64 = waiting[stream].take(length).toString("base64");
      parts.push({ stream, offset: sent[stream], data_base64 });
      sent[stream] += length;
      room -= length;
      runs[next] = run - Math.sign(run) * length;
      if (runs[next] === 0) next += 1;
    }
    if (next > runs.length / 2) [runs, next] = [runs.slice(next), 0];
    return parts.length > 0 ? parts : null;
  }

  return { add, isEmpty: () => next === runs.length, take };
}

/** Bytes in one buffer that grows by doubling: the caller's buffers are not kept. */
function createByteQueue() {
  let held = Buffer.alloc(0);
  let start = 0;
  let end = 0;
  return {
    add(bytes: Uint8Array): void {
      if (end + bytes.length > held.length) {
        const larger = Buffer.allocUnsafe(2 * (end - start + bytes.length));
        held.copy(larger, 0, start, end);
        [held, start, end] = [larger, 0, end - start];
      }
      held.set(bytes, end);
      end += bytes.length;
    },
    /** The first bytes; valid until the next `add`. */
    take(length: number): Buffer {
      const taken = held.subarray(start, start + length);
      start += length;
      if (start === end) [held, start, end] = [Buffer.alloc(0), 0, 0];
      return taken;
    },
  };
}
