import { concatBytes, decodeUtf8 } from "../../shared/bytes.ts";

/** Text of whole characters, and the bytes of an incomplete character after it. */
export interface SplitText {
  text: string;
  /** Number of bytes that `text` was decoded from. */
  length: number;
  rest: Uint8Array;
}

/**
 * Decodes the bytes of a stream that follow `rest`, up to the last whole character. All texts together
 * equal the decoded stream, wherever it was cut.
 */
export function splitText(rest: Uint8Array, more: Uint8Array): SplitText {
  const bytes = rest.length === 0 ? more : concatBytes([rest, more]);
  const length = bytes.length - incompleteBytes(bytes);
  return {
    text: decodeUtf8(bytes.subarray(0, length)),
    length,
    rest: bytes.slice(length),
  };
}

/** Number of bytes at the end that begin a character of UTF-8 which more bytes could complete: 0 to 3. */
function incompleteBytes(bytes: Uint8Array): number {
  for (let length = 1; length <= Math.min(3, bytes.length); length++) {
    const lead = bytes[bytes.length - length]!;
    if (lead < 0x80) return 0;
    if (lead < 0xc0) continue;
    return isBeginning(bytes.subarray(bytes.length - length)) ? length : 0;
  }
  return 0;
}

/** Whether a lead byte and continuation bytes begin a character without completing it, by WHATWG's decoder. */
function isBeginning(bytes: Uint8Array): boolean {
  const lead = bytes[0]!;
  const second = bytes[1];
  const needed = lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 0;
  if (bytes.length >= needed) return false;
  if (second === undefined) return true;
  const [least, most] = seconds[lead] ?? [0x80, 0xbf];
  return second >= least && second <= most;
}

/** Ranges of the second byte that exclude overlong forms, surrogates and what is beyond U+10FFFF. */
const seconds: Record<number, [least: number, most: number]> = {
  0xe0: [0xa0, 0xbf],
  0xed: [0x80, 0x9f],
  0xf0: [0x90, 0xbf],
  0xf4: [0x80, 0x8f],
};
