import { v7 } from "uuid";
import { hex } from "../shared/bytes.ts";

const randomBytes = 16;
/** Random bytes of 256 ids: asking for them together costs about as much as asking for those of one. */
const pool = new Uint8Array(256 * randomBytes);
let used = pool.length;
let last = { msecs: 0, seq: 0 };

/** A new UUID, version 7. Those of a process ascend, even if its clock is set back. */
export function newId(): string {
  const random = takeRandom();
  const msecs = Date.now();
  last =
    msecs > last.msecs
      ? { msecs, seq: new DataView(random.buffer, random.byteOffset).getUint32(6) >>> 1 }
      : { msecs: last.msecs, seq: last.seq + 1 };
  return v7({ random, ...last });
}

function takeRandom(): Uint8Array {
  if (used === pool.length) {
    crypto.getRandomValues(pool);
    used = 0;
  }
  return pool.subarray(used, (used += randomBytes));
}

/** SHA-256 of text (as UTF-8) or bytes, in hex. Uses Web Crypto, which every runtime has. */
export async function sha256(data: string | Uint8Array): Promise<string> {
  const bytes = typeof data === "string" ? new TextEncoder().encode(data) : data;
  return hex(new Uint8Array(await crypto.subtle.digest("SHA-256", new Uint8Array(bytes))));
}
