import type { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { constants, createZstdDecompress } from "node:zlib";
import { type ByteSource, byteSource } from "./byte-source.ts";
import { checked, readConfig, Sizes, sizesMaxBytes } from "./image-archive.ts";
import { ImageArchiveError } from "./image-error.ts";
import { tarEnd, tarHeader, tarPadding } from "./tar.ts";

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
    yield* file(Config, [config], config.length);
    for (const [n, sizeBytes] of sizes.layers.entries()) {
      yield* file(`${n}.tar`, checked(source.pieces(sizeBytes), diffIds[n] ?? ""), sizeBytes);
    }
    if (!(await source.isAtEnd())) throw new ImageArchiveError("it holds more than an image");
    const manifest = Buffer.from(JSON.stringify([{ Config, RepoTags: [name], Layers }]));
    yield* file("manifest.json", [manifest], manifest.length);
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

async function* file(
  name: string,
  bytes: AsyncIterable<Buffer> | Buffer[],
  sizeBytes: number,
): AsyncGenerator<Buffer> {
  yield tarHeader(name, sizeBytes);
  yield* bytes;
  yield tarPadding(sizeBytes);
}
