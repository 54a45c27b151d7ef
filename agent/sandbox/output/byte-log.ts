/** Bytes that come in pieces of any size. */
export interface ByteLog {
  readonly length: number;
  add(bytes: Uint8Array): void;
  all(): Buffer;
}

/** Pieces below this are copied together: a piece kept by itself takes 200 bytes beside its own. */
const smallBytes = 4096;
const blockBytes = 64 * 1024;

export function createByteLog(): ByteLog {
  const pieces: Uint8Array[] = [];
  /** Where small pieces go; its filled part is a piece once it is followed by another. */
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
