import { posix } from "node:path";
import type { ByteSource } from "./byte-source.ts";

/** A file of a tar, or another name of one. */
export type TarEntry =
  | { readonly kind: "file"; readonly name: string; readonly sizeBytes: number }
  | { readonly kind: "link"; readonly name: string; readonly target: string };

export const BLOCK = 512;
/** Names and sizes that do not fit the header come in a small file before it. */
const MAX_EXTENSION_BYTES = 64 * 1024;

/** The largest size that fits the eleven octal digits of a header. */
export const MAX_TAR_FILE_BYTES = 8 ** 11 - 1;

/** The padding that fills a file of this size up to the next block. */
export function tarPadding(sizeBytes: number): Buffer {
  return Buffer.alloc((BLOCK - (sizeBytes % BLOCK)) % BLOCK);
}

/** Two empty blocks end a tar. */
export const tarEnd = Buffer.alloc(2 * BLOCK);

const octal = (value: number, digits: number): string => value.toString(8).padStart(digits, "0");

/** The header of a regular file; POSIX.1-1988 "ustar", name of up to 100 ASCII characters. */
export function tarHeader(name: string, sizeBytes: number): Buffer {
  const header = Buffer.alloc(BLOCK);
  header.write(name, 0, 100, "ascii");
  header.write(`${octal(0o644, 7)}\0${octal(0, 7)}\0${octal(0, 7)}\0`, 100);
  header.write(`${octal(sizeBytes, 11)} ${octal(0, 11)} `, 124);
  header.write("        0", 148);
  header.write("ustar\x0000", 257);
  header.write(`${octal(checksum(header), 6)}\0 `, 148);
  return header;
}

export function checksum(header: Buffer): number {
  return header.reduce((sum, byte, at) => sum + (at >= 148 && at < 156 ? 32 : byte), 0);
}

/**
 * Yields the files and links of a tar in order. The caller reads the bytes of each file, without
 * padding, from `source` before it asks for the next entry.
 *
 * @throws Error if it is not a tar.
 */
export async function* readTar(source: ByteSource): AsyncGenerator<TarEntry> {
  let more: Record<string, string> = {};
  while (!(await source.isAtEnd())) {
    const header = await source.whole(BLOCK);
    if (header.every((byte) => byte === 0)) continue;
    if (Number.parseInt(text(header, 148, 8), 8) !== checksum(header)) throw new Error("no tar");
    const type = text(header, 156, 1) || "0";
    const size = Number(more["size"] ?? Number.parseInt(text(header, 124, 12) || "0", 8));
    if (!Number.isSafeInteger(size) || size < 0) throw new Error("a tar with a size that is none");
    if (type === "x" || type === "L" || type === "K") {
      more = { ...more, ...(await readExtension(source, type, size)) };
      continue;
    }
    const prefix = text(header, 345, 155);
    const name = posix.normalize(more["path"] ?? posix.join(prefix, text(header, 0, 100)));
    const link = more["linkpath"] ?? text(header, 157, 100);
    more = {};
    if (type === "0") {
      yield { kind: "file", name, sizeBytes: size };
      await source.whole(tarPadding(size).length);
      continue;
    }
    if (type === "1") yield { kind: "link", name, target: posix.normalize(link) };
    if (type === "2") yield { kind: "link", name, target: posix.join(posix.dirname(name), link) };
    for await (const _ of source.pieces(size + tarPadding(size).length));
  }
}

/**
 * Reads an extension header: pax (x: records of "<length> <key>=<value>\n") or GNU (L: name, K:
 * link).
 */
async function readExtension(
  source: ByteSource,
  type: "x" | "L" | "K",
  size: number,
): Promise<Record<string, string>> {
  if (size > MAX_EXTENSION_BYTES) throw new Error("a tar with a header that is too long");
  const bytes = await source.whole(size);
  await source.whole(tarPadding(size).length);
  if (type !== "x") return { [type === "L" ? "path" : "linkpath"]: text(bytes, 0, size) };
  const found: Record<string, string> = {};
  for (let at = 0; at < size;) {
    const length = Number.parseInt(bytes.toString("latin1", at, at + 10), 10);
    if (!(length > 0)) throw new Error("a tar with a header that is none");
    const record = bytes.toString("utf8", at, at + length - 1);
    const [, key = "", value = ""] = /^\d+ ([^=]+)=(.*)$/s.exec(record) ?? [];
    found[key] = value;
    at += length;
  }
  return found;
}

function text(bytes: Buffer, at: number, length: number): string {
  const end = bytes.indexOf(0, at);
  const last = end < 0 || end > at + length ? at + length : end;
  return bytes.toString("utf8", at, last).trim();
}
