import { gzipSync } from "node:zlib";

/**
 * A package that runs `source` to be built, and needs nothing for it: a tar archive whose build
 * backend is its own. Source: PEP 517, "In-tree build backends"; POSIX ustar, pax(1).
 */
export function sdistBytes(name: string, version: string, source: string): Buffer {
  const folder = `${name}-${version}`;
  const project = `[build-system]\nrequires = []\nbuild-backend = "own"\nbackend-path = ["."]\n`;
  const files = {
    [`${folder}/PKG-INFO`]: `Metadata-Version: 2.1\nName: ${name}\nVersion: ${version}\n`,
    [`${folder}/pyproject.toml`]: project,
    [`${folder}/own.py`]: source,
  };
  const blocks = Object.entries(files).flatMap(([path, text]) => [head(path, text), padded(text)]);
  return gzipSync(Buffer.concat([...blocks, Buffer.alloc(1024)]));
}

function head(path: string, text: string): Buffer {
  const block = Buffer.alloc(512);
  block.write(path, 0);
  block.write("0000644\0", 100);
  block.write("0000000\0", 108);
  block.write("0000000\0", 116);
  block.write(`${Buffer.byteLength(text).toString(8).padStart(11, "0")}\0`, 124);
  block.write("00000000000\0", 136);
  block.write("        0", 148);
  block.write("ustar\x0000", 257);
  const sum = block.reduce((total, byte) => total + byte, 0);
  block.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148);
  return block;
}

function padded(text: string): Buffer {
  const bytes = Buffer.from(text);
  return Buffer.concat([bytes, Buffer.alloc((512 - (bytes.length % 512)) % 512)]);
}
