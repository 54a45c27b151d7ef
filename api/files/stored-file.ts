import type { ByteRange } from "../domain/files/byte-range.ts";

/** A file of the artifact store and the headers to send it with. */
export interface StoredFile {
  /** Its name in error messages. */
  name: string;
  size: number;
  etag: string;
  headers: Record<string, string>;
  open: (range?: ByteRange) => Promise<ReadableStream<Uint8Array>>;
  /** Whether it is whole in memory once it is open. */
  isInMemory?: boolean;
}

/** A file for agents, who know it by its SHA-256. */
export function fileForAgents(
  sha256: string,
  file: Pick<StoredFile, "name" | "size" | "open">,
): StoredFile {
  const etag = `"${sha256}"`;
  const headers = {
    "Content-Type": "application/octet-stream",
    "Cache-Control": "private, no-store, no-transform",
    ETag: etag,
  };
  return { ...file, etag, headers };
}
