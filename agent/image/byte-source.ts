/** A stream of bytes that is read in amounts that the reader chooses. */
export interface ByteSource {
  /** Yields exactly `count` bytes, in pieces as they arrive. */
  pieces(count: number): AsyncGenerator<Buffer>;
  /** Returns exactly `count` bytes in one buffer; for small amounts. */
  whole(count: number): Promise<Buffer>;
  /** Whether nothing more comes. */
  isAtEnd(): Promise<boolean>;
}

/** @throws (its methods) Error if the bytes end too early; what `bytes` throws. */
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
