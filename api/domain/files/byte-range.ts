/** A part of a file; bytes. */
export interface ByteRange {
  offset: number;
  length: number;
}

/**
 * Parses a `Range` header for a file of `size` bytes. Returns the range; undefined if the answer is the
 * whole file (no, several or malformed ranges); "unsatisfiable" for 416 (RFC 9110, 14.2).
 */
export function byteRange(
  header: string | undefined,
  size: number,
): ByteRange | "unsatisfiable" | undefined {
  const match = /^bytes=(\d*)-(\d*)$/.exec(header?.trim() ?? "");
  if (!match || (!match[1] && !match[2])) return undefined;
  const last = size - 1;
  if (!match[1]) {
    const length = Math.min(Number(match[2]), size);
    return length === 0 ? "unsatisfiable" : { offset: size - length, length };
  }
  const first = Number(match[1]);
  const end = match[2] ? Math.min(Number(match[2]), last) : last;
  if (match[2] && Number(match[2]) < first) return undefined;
  return first > last ? "unsatisfiable" : { offset: first, length: end - first + 1 };
}
