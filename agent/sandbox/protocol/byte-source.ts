/** Bytes that come in pieces, taken in the amounts that their reader asks for. */
export interface ByteSource {
  /** Exactly so many bytes, in pieces as they come. */
  pieces(count: number): AsyncGenerator<Buffer>;
  /** Exactly so many bytes as one; for small amounts. */
  whole(count: number): Promise<Buffer>;
  /** Whether nothing more comes. */
  isAtEnd(): Promise<boolean>;
}

/** @throws (its methods) Error where the bytes end too early; what `bytes` throws. */
export function byteSource(bytes: AsyncIterable<Buffer>): ByteSource {
  const incoming = bytes[Symbol.asyncIterator]();
  let rest: Buffer = Buffer.alloc(0);

  async function isAtEnd(): Promise<boolean> {
    while (rest.length === 0) {
      const next = await incoming.next();
      if (next.done) return true;
      rest = next.value;
    }
    return false;
  }

  async function* pieces(count: number): AsyncGenerator<Buffer> {
    for (let left = count; left > 0;) {
      if (await isAtEnd()) throw new Error("it ends too early");
      const piece = rest.subarray(0, left);
      rest = rest.subarray(piece.length);
      left -= piece.length;
      yield piece;
    }
  }

  async function whole(count: number): Promise<Buffer> {
    const parts: Buffer[] = [];
    for await (const piece of pieces(count)) parts.push(piece);
    return Buffer.concat(parts, count);
  }

  return { pieces, whole, isAtEnd };
}
