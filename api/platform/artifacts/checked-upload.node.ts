import { createHash } from "node:crypto";
import { type Announced, UploadMismatch } from "../../deps.ts";
import { received } from "../../http/body/read.ts";

/** A body that is complete only if its size and SHA-256 are the announced ones. */
export interface CheckedUpload {
  /** The body: its last part comes after the check. */
  bytes: AsyncGenerator<Uint8Array>;
  /** The hash of the body, once it is complete. */
  sha256: () => string;
  /** Why the body broke off. */
  fault: () => unknown;
}

export function checkedUpload(
  body: ReadableStream<Uint8Array>,
  { sizeBytes, sha256: announced }: Announced,
): CheckedUpload {
  const hash = createHash("sha256");
  let sha256 = "";
  let fault: unknown;
  async function* bytes() {
    try {
      let size = 0;
      let last: Uint8Array = new Uint8Array();
      for await (const part of received(body)) {
        size += part.length;
        if (size > sizeBytes) throw new UploadMismatch();
        hash.update(part);
        if (last.length > 0) yield last;
        last = part;
      }
      sha256 = hash.digest("hex");
      if (size !== sizeBytes || (announced ?? sha256) !== sha256) throw new UploadMismatch();
      if (last.length > 0) yield last;
    } catch (error) {
      fault = error;
      throw error;
    }
  }
  return { bytes: bytes(), sha256: () => sha256, fault: () => fault };
}
