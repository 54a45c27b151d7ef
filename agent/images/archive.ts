import { createHash } from "node:crypto";
import { createReadStream, createWriteStream } from "node:fs";
import { mkdir, readFile } from "node:fs/promises";
import { join, posix } from "node:path";
import type { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { constants, createZstdCompress, createZstdDecompress } from "node:zlib";
import { z } from "zod";
import { STANDS_IN_FOR } from "./images.ts";

/** A file of a tar, or another name of one. */
type TarEntry =
  | { readonly kind: "file"; readonly name: string; readonly sizeBytes: number }
  | { readonly kind: "link"; readonly name: string; readonly target: string };

const BLOCK = 512;
/** Names and sizes that do not fit the header come in a small file before it. */
const MAX_EXTENSION_BYTES = 64 * 1024;

/** The largest size that fits the eleven octal digits of a header. */
const MAX_TAR_FILE_BYTES = 8 ** 11 - 1;

/** The padding that fills a file of this size up to the next block. */
export function tarPadding(sizeBytes: number): Buffer {
  return Buffer.alloc((BLOCK - (sizeBytes % BLOCK)) % BLOCK);
}

/** Two empty blocks end a tar. */
export const tarEnd = Buffer.alloc(2 * BLOCK);

const toOctal = (value: number, digits: number): string => value.toString(8).padStart(digits, "0");

/** The header of a regular file, or of a link; POSIX.1-1988 "ustar", names of up to 100 ASCII characters. */
export function tarHeader(name: string, sizeBytes: number, target = ""): Buffer {
  const header = Buffer.alloc(BLOCK);
  header.write(name, 0, 100, "ascii");
  header.write(`${toOctal(0o644, 7)}\0${toOctal(0, 7)}\0${toOctal(0, 7)}\0`, 100);
  header.write(`${toOctal(sizeBytes, 11)} ${toOctal(0, 11)} `, 124);
  header.write(`        ${target === "" ? "0" : "2"}${target}`, 148);
  header.write("ustar\x0000", 257);
  header.write(`${toOctal(checksum(header), 6)}\0 `, 148);
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
async function* readTar(source: ByteSource): AsyncGenerator<TarEntry> {
  let more: Record<string, string> = {};
  while (!(await source.isAtEnd())) {
    const header = await source.whole(BLOCK);
    if (header.every((byte) => byte === 0)) continue;
    if (Number.parseInt(readText(header, 148, 8), 8) !== checksum(header))
      throw new Error("no tar");
    const type = readText(header, 156, 1) || "0";
    const size = Number(more["size"] ?? Number.parseInt(readText(header, 124, 12) || "0", 8));
    if (!Number.isSafeInteger(size) || size < 0) throw new Error("a tar with a size that is none");
    if (type === "x" || type === "L" || type === "K") {
      more = { ...more, ...(await readExtension(source, type, size)) };
      continue;
    }
    const prefix = readText(header, 345, 155);
    const name = posix.normalize(more["path"] ?? posix.join(prefix, readText(header, 0, 100)));
    const link = more["linkpath"] ?? readText(header, 157, 100);
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

/** The only file of a tar; null if there is something else, or a file of more bytes. */
export async function readSmallFile(tar: Readable, maxBytes: number): Promise<Buffer | null> {
  const source = byteSource(tar);
  try {
    for await (const entry of readTar(source)) {
      const isWanted = entry.kind === "file" && !entry.name.includes("/");
      return isWanted && entry.sizeBytes <= maxBytes ? await source.whole(entry.sizeBytes) : null;
    }
    return null;
  } finally {
    tar.destroy();
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
  if (type !== "x") return { [type === "L" ? "path" : "linkpath"]: readText(bytes, 0, size) };
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

function readText(bytes: Buffer, at: number, length: number): string {
  const end = bytes.indexOf(0, at);
  const last = end < 0 || end > at + length ? at + length : end;
  return bytes.toString("utf8", at, last).trim();
}

/**
 * The format in which images go from host to host: a line of JSON with the sizes of the parts, the
 * image's configuration, then its layers in order; everything compressed with zstd. An image's id
 * is the SHA-256 of its configuration, which holds the SHA-256 of each layer, so both sides can
 * check every byte.
 */
const Sizes = z.object({
  config: z
    .int()
    .min(2)
    .max(4 * 1024 * 1024),
  layers: z.array(z.int().min(0).max(MAX_TAR_FILE_BYTES)).max(1000),
});
const sizesMaxBytes = 64 * 1024;

const ImageConfig = z.object({
  architecture: z.string().optional(),
  rootfs: z.object({ diff_ids: z.array(z.string()) }),
  config: z.object({ Labels: z.record(z.string(), z.string()).nullish() }).nullish(),
});

/** Why an engine that calls an image by another digest than that of its configuration cannot share it. */
export const otherIds =
  "an engine with containerd's image store cannot share images through the artifact store: set image_registry, or turn containerd-snapshotter off";

/**
 * Checks a configuration against the id of its image and, if given, the engine's architecture.
 * Returns the SHA-256 of each layer.
 */
function readConfig(bytes: Buffer, image: string, layers: number, engine?: string): string[] {
  if (sha256(bytes) !== image) {
    throw new ImageArchiveError(`its id is not that of its configuration, ${sha256(bytes)}`);
  }
  const { rootfs, config, architecture } = ImageConfig.parse(JSON.parse(bytes.toString("utf8")));
  if (rootfs.diff_ids.length !== layers) throw new ImageArchiveError("it lacks layers");
  const standsInFor = config?.Labels?.[STANDS_IN_FOR];
  if (standsInFor) throw new ImageArchiveError(`it would stand in for ${standsInFor}`);
  if (engine && architecture && architecture !== engine) {
    throw new ImageArchiveError(`it is for ${architecture}, and this host is ${engine}`);
  }
  return rootfs.diff_ids;
}

/**
 * Passes on the bytes of a layer. Throws if they must not be unpacked, and at the end if their
 * digest is not `diffId`.
 */
async function* checked(bytes: AsyncIterable<Buffer>, diffId: string): AsyncGenerator<Buffer> {
  const hash = createHash("sha256");
  for await (const piece of checkLayer(bytes)) {
    hash.update(piece);
    yield piece;
  }
  if (`sha256:${hash.digest("hex")}` !== diffId) {
    throw new ImageArchiveError(`a layer is not ${diffId}, which its configuration names`);
  }
}

function sha256(bytes: Buffer): string {
  return `sha256:${createHash("sha256").update(bytes).digest("hex")}`;
}

/** manifest.json of an engine's tar; it names the other files. */
const Manifest = z.tuple([z.object({ Config: z.string(), Layers: z.array(z.string()) })]);

export interface PackedImage {
  readonly path: string;
  readonly sizeBytes: number;
  /** Lower-case hex. */
  readonly sha256: string;
}

// 0.6 s of CPU for 130 MB, where gzip takes 2 s and the default level 1 s (measured).
const zstdLevel = { [constants.ZSTD_c_compressionLevel]: 1 };

/**
 * Creates `folder` and makes an archive in it from a tar that an engine saved.
 *
 * @throws ImageArchiveError if the engine's image cannot be sent; what `tar` throws.
 */
export async function packImage(
  tar: Readable,
  image: string,
  folder: string,
  maxBytes: number,
): Promise<PackedImage> {
  await mkdir(folder, { recursive: true });
  const { config, layers } = await spread(tar, folder, maxBytes);
  const path = join(folder, "archive");
  const hash = createHash("sha256");
  let sizeBytes = 0;
  await pipeline(
    parts(config, layers, image),
    createZstdCompress({ params: zstdLevel }),
    async function* (compressed: AsyncIterable<Buffer>) {
      for await (const piece of compressed) {
        hash.update(piece);
        sizeBytes += piece.length;
        yield piece;
      }
    },
    createWriteStream(path),
  );
  return { path, sizeBytes, sha256: hash.digest("hex") };
}

interface Part {
  readonly path: string;
  readonly sizeBytes: number;
}

/**
 * Writes the files of the tar into the folder with numbers as names, and finds the configuration
 * and the layers.
 */
async function spread(tar: Readable, folder: string, maxBytes: number) {
  const files = new Map<string, Part>();
  const links = new Map<string, string>();
  const source = byteSource(tar);
  let room = maxBytes;
  for await (const entry of readTar(source)) {
    const { name } = entry;
    if (entry.kind === "link") {
      links.set(name, entry.target);
      continue;
    }
    room -= entry.sizeBytes;
    if (room < 0)
      throw new ImageArchiveError(`it has more than ${maxBytes} bytes (max_image_bytes)`);
    const path = join(folder, String(files.size));
    await pipeline(source.pieces(entry.sizeBytes), createWriteStream(path));
    files.set(name, { path, sizeBytes: entry.sizeBytes });
  }
  const find = (name: string): Part => {
    const found = files.get(name) ?? files.get(links.get(name) ?? "");
    if (!found) throw new ImageArchiveError(`the engine's tar lacks ${name}`);
    return found;
  };
  const manifest = JSON.parse(await readFile(find("manifest.json").path, "utf8")) as unknown;
  const [{ Config, Layers }] = Manifest.parse(manifest);
  return { config: find(Config), layers: Layers.map(find) };
}

async function* parts(config: Part, layers: Part[], image: string): AsyncGenerator<Buffer> {
  const sizes = { config: config.sizeBytes, layers: layers.map(({ sizeBytes }) => sizeBytes) };
  const configBytes = await readFile(config.path);
  if (sha256(configBytes) !== image) throw new ImageArchiveError(otherIds);
  const diffIds = readConfig(configBytes, image, layers.length);
  yield Buffer.from(`${JSON.stringify(Sizes.parse(sizes))}\n`);
  yield configBytes;
  for (const [n, { path }] of layers.entries()) {
    yield* checked(createReadStream(path), diffIds[n] ?? "");
  }
}

/** Limits the memory that a foreign archive can make the reader use: 8 MiB. */
const zstdWindow = { [constants.ZSTD_d_windowLogMax]: 23 };

export interface UnpackBounds {
  /** Size of the unpacked image. */
  readonly maxBytes: number;
  /** The required processor architecture, such as "amd64". */
  readonly architecture: string;
}

/**
 * Turns the archive of an image into a tar that an engine can load, with only that image under one
 * name. If the archive holds anything else, it throws halfway; engines keep nothing of a truncated
 * tar.
 *
 * @throws ImageArchiveError
 */
export async function* unpackImage(
  archive: Readable,
  image: string,
  name: string,
  { maxBytes, architecture }: UnpackBounds,
): AsyncGenerator<Buffer> {
  const unzipped = createZstdDecompress({ params: zstdWindow });
  const unzipping = pipeline(archive, unzipped);
  unzipping.catch(() => {});
  const source = byteSource(unzipped);
  try {
    const sizes = Sizes.parse(JSON.parse(await readLine(source)));
    const total = sizes.layers.reduce((sum, size) => sum + size, sizes.config);
    if (total > maxBytes) {
      throw new ImageArchiveError(`it has ${total} bytes, more than max_image_bytes (${maxBytes})`);
    }
    const config = await source.whole(sizes.config);
    const diffIds = readConfig(config, image, sizes.layers.length, architecture);
    const Config = `${image.slice("sha256:".length)}.json`;
    const Layers = diffIds.map((_, n) => `${n}.tar`);
    yield* tarFile(Config, [config], config.length);
    for (const [n, sizeBytes] of sizes.layers.entries()) {
      yield* tarFile(`${n}.tar`, checked(source.pieces(sizeBytes), diffIds[n] ?? ""), sizeBytes);
    }
    if (!(await source.isAtEnd())) throw new ImageArchiveError("it holds more than an image");
    const manifest = Buffer.from(JSON.stringify([{ Config, RepoTags: [name], Layers }]));
    yield* tarFile("manifest.json", [manifest], manifest.length);
    yield tarEnd;
  } catch (error) {
    if (error instanceof ImageArchiveError) throw error;
    // The error that broke the stream says more than that it ended.
    if (archive.errored) await unzipping;
    throw new ImageArchiveError("it is damaged", { cause: error });
  } finally {
    unzipped.destroy();
    archive.destroy();
  }
}

async function readLine(source: ByteSource): Promise<string> {
  const bytes: number[] = [];
  while (bytes.length < sizesMaxBytes) {
    const [byte = 10] = await source.whole(1);
    if (byte === 10) return Buffer.from(bytes).toString("utf8");
    bytes.push(byte);
  }
  throw new ImageArchiveError("it does not tell its sizes");
}

async function* tarFile(
  name: string,
  bytes: AsyncIterable<Buffer> | Buffer[],
  sizeBytes: number,
): AsyncGenerator<Buffer> {
  yield tarHeader(name, sizeBytes);
  yield* bytes;
  yield tarPadding(sizeBytes);
}

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
const MAX_LAYER_EXTENSION_BYTES = 1024 * 1024;
const regularFile = "0";
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
    if (readOctal(header, 148, 8) !== checksum(header)) refuse("a header that is none");
    const type = header.toString("latin1", 156, 157);
    const size = (type === regularFile ? paxSize : undefined) ?? readOctal(header, 124, 12);
    if (type === pax || longNames.includes(type)) {
      if (size > MAX_LAYER_EXTENSION_BYTES) refuse("a header that is too long");
      const extension = await source.whole(paddedToBlocks(size));
      if (type === pax) paxSize = readPax(extension.subarray(0, size));
      yield extension;
      continue;
    }
    if (withoutBytes.includes(type)) {
      if (size > 0 || paxSize !== undefined) refuse("a link or folder with bytes");
    } else if (type !== regularFile) refuse(`an entry of the type ${JSON.stringify(type)}`);
    paxSize = undefined;
    yield* source.pieces(paddedToBlocks(size));
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

function readOctal(header: Buffer, at: number, length: number): number {
  const field = header.toString("latin1", at, at + length);
  if (!/^ *[0-7]+[ \0]*$/.test(field)) refuse("a number that is none");
  return Number.parseInt(field, 8);
}

const paddedToBlocks = (size: number): number => Math.ceil(size / BLOCK) * BLOCK;

const isZero = (block: Buffer): boolean => block.every((byte) => byte === 0);

function refuse(what: string): never {
  throw new ImageArchiveError(`a layer holds ${what}`);
}

type ByteSource = ReturnType<typeof byteSource>;

/**
 * A stream of bytes that is read in amounts that the reader chooses.
 *
 * @throws (its methods) Error if the bytes end too early; what `bytes` throws.
 */
function byteSource(bytes: AsyncIterable<Buffer>) {
  const incoming = bytes[Symbol.asyncIterator]();
  let rest: Buffer = Buffer.alloc(0);

  /** Whether nothing more comes. */
  async function isAtEnd(): Promise<boolean> {
    while (rest.length === 0) {
      const next = await incoming.next();
      if (next.done) return true;
      rest = next.value;
    }
    return false;
  }

  /** Yields exactly `count` bytes, in pieces as they arrive. */
  async function* pieces(count: number): AsyncGenerator<Buffer> {
    for (let left = count; left > 0;) {
      if (await isAtEnd()) throw new Error("it ends too early");
      const piece = rest.subarray(0, left);
      rest = rest.subarray(piece.length);
      left -= piece.length;
      yield piece;
    }
  }

  /** Returns exactly `count` bytes in one buffer; for small amounts. */
  async function whole(count: number): Promise<Buffer> {
    const parts: Buffer[] = [];
    for await (const piece of pieces(count)) parts.push(piece);
    return Buffer.concat(parts, count);
  }

  return { pieces, whole, isAtEnd };
}

/** The image cannot be sent or accepted as it is; the message says why. */
class ImageArchiveError extends Error {
  override name = "ImageArchiveError";
}
