import { Readable } from "node:stream";
import { buffer } from "node:stream/consumers";
import { gzipSync, zstdCompressSync } from "node:zlib";
import { expect, it } from "vitest";
import { checkLayer } from "./check-layer.ts";
import { checksum, tarEnd, tarHeader, tarPadding } from "./tar.ts";

/** A line of text, as bzip2 and as xz write it. */
const bzip2 = Buffer.from(
  "425a683931415926535927a1add4000004d1800010400037549eb02000314d32313131089ea1b441a1a42295dc2619f6067d3d729e1dd4f11b80b17bca91f17724538509027a1add40",
  "hex",
);
const xz = Buffer.from(
  "fd377a585a000004e6d6b4460200210116000000742fe5a301002761206c61796572206f66207a65726f7320776f756c64206265206a7573742061732073686f72740a00a6385f7d39a94f1800014028d4524ae51fb6f37d010000000004595a",
  "hex",
);

/** One entry of a tar; `told` is the size in its header where that is not the one of its bytes. */
function entry(name: string, bytes: Buffer | string, type = "0", told?: number): Buffer {
  const content = Buffer.from(bytes);
  const header = tarHeader(name, told ?? content.length);
  header.write(type, 156, "latin1");
  header.write(`${checksum(header).toString(8).padStart(6, "0")}\0 `, 148);
  return Buffer.concat([header, content, tarPadding(content.length)]);
}

const tar = (...entries: Buffer[]): Buffer => Buffer.concat([...entries, tarEnd]);

function paxRecord(key: string, value: string): string {
  const rest = ` ${key}=${value}\n`;
  const length = [2, 3]
    .map((digits) => rest.length + digits)
    .find((n) => `${n}`.length + rest.length === n)!;
  return `${length}${rest}`;
}

const pass = (layer: Buffer, pieceBytes = 1000): Promise<Buffer> => {
  const pieces = Array.from({ length: Math.ceil(layer.length / pieceBytes) }, (_, n) =>
    layer.subarray(n * pieceBytes, (n + 1) * pieceBytes),
  );
  return buffer(checkLayer(Readable.from(pieces) as AsyncIterable<Buffer>));
};

it.each([
  [
    "files, folders and links",
    tar(entry("a/", "", "5"), entry("a/b", "text"), entry("c", "", "2")),
  ],
  ["long names", tar(entry("x", "n".repeat(200), "L"), entry("short", "text"))],
  [
    "a size and attributes in a pax header",
    tar(
      entry("x", paxRecord("mtime", "1.5") + paxRecord("size", "600"), "x"),
      entry("f", "y".repeat(600), "0", 0),
    ),
  ],
  ["nothing", tarEnd],
])("a layer with %s passes unchanged", async (_what, layer) => {
  for (const pieceBytes of [1, 512, 100_000])
    expect((await pass(layer, pieceBytes)).equals(layer)).toBe(true);
});

const inner = tar(entry("file", "x".repeat(2000)));

it.each([
  ["gzip", gzipSync(inner)],
  ["bzip2", bzip2],
  ["xz", xz],
  ["zstd", zstdCompressSync(inner)],
  ["zstd", Buffer.concat([Buffer.from("502a4d1800000000", "hex"), zstdCompressSync(inner)])],
  ["bzip2", tar(entry("BZh91AY", "a tar whose first name is taken for bzip2"))],
])("a layer of %s is refused before an engine unpacks it", async (what, layer) => {
  const whole = Buffer.concat([layer, Buffer.alloc(1024)]);
  await expect(pass(whole)).rejects.toThrow(`a layer holds ${what} data in the place of a tar`);
});

it.each([
  ["a GNU sparse file", tar(entry("big", "x", "S")), 'of the type "S"'],
  [
    "a sparse file in a pax header",
    tar(entry("x", paxRecord("GNU.sparse.realsize", "1000000000000"), "x"), entry("big", "x")),
    "a sparse file",
  ],
  ["a header for all entries", tar(entry("x", paxRecord("size", "5"), "g")), 'of the type "g"'],
  ["a file without a type", tar(entry("a/", "x", "\0")), "of the type"],
  [
    "a link that hides a header",
    tar(entry("link", entry("big", "", "S"), "2")),
    "a link or folder with bytes",
  ],
  [
    "a folder that a pax header gives bytes",
    tar(entry("x", paxRecord("size", "512"), "x"), entry("d/", "", "5")),
    "a link or folder with bytes",
  ],
  [
    "a size of another notation",
    tar(Buffer.concat([binarySize(entry("f", ""))])),
    "a number that is none",
  ],
  ["a pax header of another form", tar(entry("x", "11 size=x 5\n", "x"), entry("f", "")), "none"],
  ["a header that is too long", tar(entry("x", "", "x", 2 * 1024 * 1024)), "too long"],
  [
    "something after its end",
    Buffer.concat([tarEnd, entry("big", "", "S")]),
    "bytes after its end",
  ],
  ["no tar", Buffer.alloc(1024, "x"), "none"],
])("a layer with %s is refused", async (_what, layer, words) => {
  await expect(pass(layer)).rejects.toThrow(words);
});

it("a truncated layer is refused", async () => {
  await expect(pass(entry("f", "x".repeat(600)).subarray(0, 700))).rejects.toThrow("too early");
});

/** The same header with its size in base 256. */
function binarySize(header: Buffer): Buffer {
  header[124] = 0x80;
  header.write(`${checksum(header).toString(8).padStart(6, "0")}\0 `, 148);
  return header;
}
