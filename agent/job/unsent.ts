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

export function createUnsent(): Unsent {
  let waiting: { stream: StreamName; pieces: Uint8Array[] }[] = [];
  const sent = { stdout: 0, stderr: 0 };

  function add(stream: StreamName, bytes: Uint8Array): void {
    const last = waiting.at(-1);
    if (last?.stream === stream) last.pieces.push(bytes);
    else waiting.push({ stream, pieces: [bytes] });
  }

  function take(): OutputPart[] | null {
    const parts: OutputPart[] = [];
    let room = POST_MAX_BYTES;
    let taken = 0;
    for (const { stream, pieces } of waiting) {
      if (room === 0 || parts.length === POST_MAX_PARTS) break;
      const bytes = Buffer.concat(pieces);
      const head = bytes.subarray(0, room);
      parts.push({ stream, offset: sent[stream], data_base64: head.toString("base64") });
      sent[stream] += head.length;
      room -= head.length;
      if (head.length === bytes.length) taken += 1;
      else pieces.splice(0, pieces.length, bytes.subarray(head.length));
    }
    waiting = waiting.slice(taken);
    return parts.length > 0 ? parts : null;
  }

  return { add, isEmpty: () => waiting.length === 0, take };
}
