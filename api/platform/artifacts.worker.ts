import { hex } from "../../shared/bytes.ts";
import { ArtifactOutage, type ArtifactStore, UploadMismatch } from "../deps.ts";
import { AppError } from "../errors.ts";
import { received } from "../http/body.ts";

/** The part of an R2 bucket binding that artifacts need. */
export interface Bucket {
  put(key: string, value: ReadableStream, options: { sha256?: string }): Promise<unknown>;
  get(
    key: string,
    options?: { range: { offset: number; length: number } },
  ): Promise<{ body: ReadableStream<Uint8Array> } | null>;
  list(options: { prefix: string }): Promise<{ objects: { key: string }[] }>;
  delete(keys: string[]): Promise<void>;
}

/**
 * Stores artifacts in an R2 bucket. R2 shows whole objects only and checks the SHA-256. The runtime
 * makes sure that the request body has the length in its Content-Length.
 */
export function artifactBucket(bucket: Bucket): ArtifactStore {
  return {
    async put(key, body, { sizeBytes, sha256 }) {
      if (sha256 === undefined) return putHashing(bucket, key, body, sizeBytes);
      await asked(bucket.put(key, body, { sha256 }));
      return sha256;
    },
    async get(key, range) {
      return (await asked(bucket.get(key, range && { range })))?.body;
    },
    async remove(prefix) {
      for (;;) {
        const { objects } = await asked(bucket.list({ prefix: `${prefix}/` }));
        if (objects.length === 0) return;
        await asked(bucket.delete(objects.map(({ key }) => key)));
      }
    },
    // R2 stores nothing of a broken upload.
    removePartial: () => Promise.resolve(),
  };
}

/** Stores a body whose hash was not announced. */
async function putHashing(
  bucket: Bucket,
  key: string,
  body: ReadableStream<Uint8Array>,
  sizeBytes: number,
): Promise<string> {
  const { readable, writable } = new FixedLengthStream(sizeBytes);
  const { DigestStream } = crypto as unknown as EdgeCrypto;
  const digest = new DigestStream("SHA-256");
  const [file, hash] = [writable.getWriter(), digest.getWriter()];
  let fault: unknown;
  const pass = async () => {
    try {
      for await (const part of received(body)) {
        await Promise.all([file.write(part), hash.write(part)]);
      }
      await Promise.all([file.close(), hash.close()]);
    } catch (error) {
      fault = error;
      await file.abort(error);
      throw error;
    }
  };
  try {
    await Promise.all([asked(bucket.put(key, readable, {})), pass()]);
  } catch (error) {
    throw fault instanceof AppError ? fault : error;
  }
  return hex(new Uint8Array(await digest.digest));
}

/** R2's error for a wrong checksum. Source: https://developers.cloudflare.com/r2/api/error-codes/ */
const badDigest = "(10037)";

async function asked<T>(call: Promise<T>): Promise<T> {
  try {
    return await call;
  } catch (cause) {
    if (cause instanceof Error && cause.message.includes(badDigest)) {
      throw new UploadMismatch(undefined, { cause });
    }
    throw new ArtifactOutage("R2 cannot store or fetch artifacts", { cause });
  }
}
