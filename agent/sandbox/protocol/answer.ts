import type { CallAnswer } from "../job.ts";
import { dataBytes, encodeFrame } from "./frames.ts";

/** The frames of an answer to a call; python/tools.py reads what they bring. */
export function* answerFrames(id: number, answer: CallAnswer): Generator<Buffer> {
  const given =
    "error" in answer ? `"error":${JSON.stringify(answer.error)}` : `"result":${answer.resultJson}`;
  const text = Buffer.from(`{"id":${id},${given}}`);
  const message = Buffer.concat([Buffer.alloc(4), text]);
  message.writeUInt32BE(text.length);
  const size = dataBytes - 1;
  for (let at = 0; at < message.length; at += size) {
    const isLast = at + size >= message.length;
    const piece = message.subarray(at, at + size);
    yield encodeFrame("Y", Buffer.concat([Buffer.from([isLast ? 0 : 1]), piece]));
  }
}
