/** Bytes that come in pieces of any size. */
export interface ByteLog {
  readonly length: number;
  add(bytes: Uint8Array): void;
  all(): Buffer;
}

/** Smaller pieces are copied together: each stored piece has an overhead of 200 bytes. */
const smallBytes = 4096;
const blockBytes = 64 * 1024;

export function createByteLog(): ByteLog {
  const pieces: Uint8Array[] = [];
  /** Buffer for small pieces; its filled part becomes a piece when another one follows. */
  let block = Buffer.alloc(0);
  let filled = 0;
  let length = 0;

  function closeBlock(): void {
    if (filled > 0) pieces.push(block.subarray(0, filled));
    block = block.subarray(filled);
    filled = 0;
  }

  return {
    get length() {
      return length;
    },
    add(bytes) {
      length += bytes.length;
      if (bytes.length >= smallBytes) {
        closeBlock();
        pieces.push(bytes);
        return;
      }
      if (filled + bytes.length > block.length) {
        closeBlock();
        block = Buffer.allocUnsafeSlow(blockBytes);
      }
      block.set(bytes, filled);
      filled += bytes.length;
    },
    all() {
      return Buffer.concat([...pieces, block.subarray(0, filled)], length);
    },
  };
}
