import { type ByteSource, byteSource } from "./byte-source.ts";
import { ImageArchiveError } from "./image-error.ts";
import { BLOCK, checksum } from "./tar.ts";

/**
 * The first bytes (hexadecimal) by which engines recognise a compressed layer. They decompress it
 * before they check its digest, so a small layer could fill the disk. Source:
 * github.com/moby/go-archive compression.go, github.com/containers/image pkg/compression.
 */
const compressions: readonly (readonly [name: string, magic: RegExp])[] = [
  ["gzip", /^1f8b/],
  ["bzip2", /^425a68/],
  ["xz", /^fd377a585a/],
  ["zstd", /^(28b52ffd|5[0-9a-f]2a4d18)/],
];

/** Extended headers are read into memory; Go's reader has the same limit. */
const MAX_EXTENSION_BYTES = 1024 * 1024;
const file = "0";
const pax = "x";
/** GNU entries for a name or link target that is too long for the header. */
const longNames = ["L", "K"];
/** Links, devices, folders and pipes, which have no content. */
const withoutBytes = ["1", "2", "3", "4", "5", "6"];

/**
 * Passes on the bytes of a layer from another host. Throws if unpacking it would take more disk
 * space than its own size, or if two tar readers could read it differently.
 *
 * @throws ImageArchiveError; Error if the layer ends too early.
 */
export async function* checkLayer(bytes: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  const source = byteSource(bytes);
  let isFirst = true;
  /** Size of the next file, if it does not fit its header. */
  let paxSize: number | undefined;
  while (!(await source.isAtEnd())) {
    const header = await source.whole(BLOCK);
    if (isFirst) refuseCompressed(header);
    isFirst = false;
    yield header;
    if (isZero(header)) {
      yield* zeros(source);
      return;
    }
    if (octal(header, 148, 8) !== checksum(header)) refuse("a header that is none");
    const type = header.toString("latin1", 156, 157);
    const size = (type === file ? paxSize : undefined) ?? octal(header, 124, 12);
    if (type === pax || longNames.includes(type)) {
      if (size > MAX_EXTENSION_BYTES) refuse("a header that is too long");
      const extension = await source.whole(padded(size));
      if (type === pax) paxSize = readPax(extension.subarray(0, size));
      yield extension;
      continue;
    }
    if (withoutBytes.includes(type)) {
      if (size > 0 || paxSize !== undefined) refuse("a link or folder with bytes");
    } else if (type !== file) refuse(`an entry of the type ${JSON.stringify(type)}`);
    paxSize = undefined;
    yield* source.pieces(padded(size));
  }
}

function refuseCompressed(header: Buffer): void {
  const start = header.toString("hex", 0, 8);
  const found = compressions.find(([, magic]) => magic.test(start));
  if (found) refuse(`${found[0]} data in the place of a tar`);
}

/**
 * Allows only zeros after the end of the tar, because another reader could take other bytes for
 * entries.
 */
async function* zeros(source: ByteSource): AsyncGenerator<Buffer> {
  while (!(await source.isAtEnd())) {
    const block = await source.whole(BLOCK);
    if (!isZero(block)) refuse("bytes after its end");
    yield block;
  }
}

/**
 * @returns the size of the next file, if a record gives it. Each record is "<length>
 *   <key>=<value>\n".
 */
function readPax(records: Buffer): number | undefined {
  let size: number | undefined;
  for (let at = 0; at < records.length;) {
    const [head = "", digits = ""] =
      /^([1-9]\d{0,6}) /.exec(records.toString("latin1", at, at + 8)) ?? [];
    const end = at + Number(digits);
    const record = records.toString("latin1", at + head.length, end);
    const [, key = "", value = ""] = /^([^=\0]+)=(.*)\n$/s.exec(record) ?? [];
    if (digits === "" || end > records.length || key === "") refuse("a header that is none");
    if (key.startsWith("GNU.sparse")) refuse("a sparse file");
    if (key === "size") {
      if (!/^\d{1,15}$/.test(value)) refuse("a size that is none");
      size = Number(value);
    }
    at = end;
  }
  return size;
}

function octal(header: Buffer, at: number, length: number): number {
  const field = header.toString("latin1", at, at + length);
  if (!/^ *[0-7]+[ \0]*$/.test(field)) refuse("a number that is none");
  return Number.parseInt(field, 8);
}

const padded = (size: number): number => Math.ceil(size / BLOCK) * BLOCK;

const isZero = (block: Buffer): boolean => block.every((byte) => byte === 0);

function refuse(what: string): never {
  throw new ImageArchiveError(`a layer holds ${what}`);
}
