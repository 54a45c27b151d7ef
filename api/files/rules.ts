import { Mime } from "mime/lite";
import other from "mime/types/other.js";
import standard from "mime/types/standard.js";

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

/** Types of files that programs often write and that the library does not know, or maps to a worse type. */
const known = new Mime(standard, other).define(
  {
    "application/vnd.apache.arrow.file": ["arrow", "feather"],
    "application/vnd.apache.parquet": ["parquet"],
    "application/x-ndjson": ["jsonl", "ndjson"],
    "application/zip": ["npz", "whl"],
    "audio/opus": ["opus"],
    "text/x-python": ["py"],
  },
  true,
);

const isText = /^text\/|^image\/svg\+xml$|^application\/(xhtml\+)?xml$/;

/** Picks the Content-Type of a file by its name. */
export function contentTypeOf(name: string): string {
  // The library needs a path: it would treat a name without a dot as an extension.
  const type = known.getType(`/${name}`) ?? "application/octet-stream";
  return isText.test(type) ? `${type}; charset=utf-8` : type;
}

/**
 * Keys of bytes in the artifact store: ids and hashes, never a client's name. Bytes are removed by the first
 * part of their key, the id of their owner, or by the first two.
 */

export function artifactKey(row: { executionId: string; leaseId: string; sha256: string }): string {
  return `${row.executionId}/${row.leaseId}/${row.sha256}`;
}

export function fileKey({ id }: { id: string }): string {
  return `${id}/file`;
}
