import { type ArtifactStore, UploadMismatch } from "../deps.ts";

/** The part of an R2 bucket binding that artifacts need. */
export interface Bucket {
  put(key: string, value: ReadableStream, options: { sha256: string }): Promise<unknown>;
  get(
    key: string,
    options?: { range: { offset: number; length: number } },
  ): Promise<{ body: ReadableStream<Uint8Array> } | null>;
  list(options: { prefix: string }): Promise<{ objects: { key: string }[] }>;
  delete(keys: string[]): Promise<void>;
}

/**
 * Artifacts in an R2 bucket. R2 shows whole objects only, and checks the SHA-256 itself; the length
 * is that of the request body, which the runtime holds to its Content-Length.
 */
export function artifactBucket(bucket: Bucket): ArtifactStore {
  return {
    async put(key, body, { sha256 }) {
      try {
        await bucket.put(key, body, { sha256 });
      } catch (cause) {
        throw new UploadMismatch("Size or SHA-256 of the upload differ from its headers.", {
          cause,
        });
      }
    },
    async get(key, range) {
      return (await bucket.get(key, range && { range }))?.body;
    },
    async remove(prefix) {
      for (;;) {
        const { objects } = await bucket.list({ prefix: `${prefix}/` });
        if (objects.length === 0) return;
        await bucket.delete(objects.map(({ key }) => key));
      }
    },
    // R2 keeps nothing of an upload that broke off.
    removePartial: () => Promise.resolve(),
  };
}
