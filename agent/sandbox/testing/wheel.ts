import { createHash } from "node:crypto";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { crc32 } from "node:zlib";

/** A package of one module, as a wheel (PEP 427). */
export interface Wheel {
  readonly name: string;
  readonly version: string;
  /** Source of the module. */
  readonly source: string;
  /** Requirements of its own. */
  readonly requires?: readonly string[];
  /** Further files by their paths in site-packages. */
  readonly files?: Readonly<Record<string, string>>;
}

export function wheelFile({ name, version }: Wheel): string {
  return `${name}-${version}-py3-none-any.whl`;
}

export function wheelBytes(wheel: Wheel): Buffer {
  const { name, version, source, requires = [], files: more = {} } = wheel;
  const info = `${name}-${version}.dist-info`;
  const files: Record<string, string> = {
    ...more,
    [`${name}.py`]: source,
    [`${info}/METADATA`]: [
      "Metadata-Version: 2.1",
      `Name: ${name}`,
      `Version: ${version}`,
      ...requires.map((requirement) => `Requires-Dist: ${requirement}`),
      "",
    ].join("\n"),
    [`${info}/WHEEL`]:
      "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
  };
  const record = Object.entries(files).map(([path, text]) => {
    const hash = createHash("sha256").update(text).digest("base64url");
    return `${path},sha256=${hash},${Buffer.byteLength(text)}`;
  });
  return zip({ ...files, [`${info}/RECORD`]: [...record, `${info}/RECORD,,`, ""].join("\n") });
}

/** Writes wheels into a folder, as `pip_find_links` names one. */
export function writeWheels(folder: string, ...wheels: Wheel[]): void {
  for (const wheel of wheels) writeFileSync(join(folder, wheelFile(wheel)), wheelBytes(wheel));
}

/** A zip archive of uncompressed files. Source: PKWARE APPNOTE 6.3, 4.3.7, 4.3.12 and 4.3.16. */
function zip(files: Record<string, string>): Buffer {
  const bodies: Buffer[] = [];
  const directory: Buffer[] = [];
  let offset = 0;
  for (const [path, text] of Object.entries(files)) {
    const name = Buffer.from(path);
    const data = Buffer.from(text);
    const common = Buffer.alloc(26);
    common.writeUInt16LE(20, 0); // version needed
    common.writeUInt16LE(0x21, 8); // date: 1980-01-01
    common.writeUInt32LE(crc32(data), 10);
    common.writeUInt32LE(data.length, 14);
    common.writeUInt32LE(data.length, 18);
    common.writeUInt16LE(name.length, 22);
    const local = Buffer.concat([Buffer.from("PK\x03\x04"), common, name, data]);
    const place = Buffer.alloc(14);
    place.writeUInt32LE(0o644 << 16, 6); // mode
    place.writeUInt32LE(offset, 10);
    directory.push(Buffer.concat([Buffer.from("PK\x01\x02\x14\x03"), common, place, name]));
    bodies.push(local);
    offset += local.length;
  }
  const entries = Buffer.concat(directory);
  const end = Buffer.alloc(22);
  end.write("PK\x05\x06");
  end.writeUInt16LE(directory.length, 8);
  end.writeUInt16LE(directory.length, 10);
  end.writeUInt32LE(entries.length, 12);
  end.writeUInt32LE(offset, 16);
  return Buffer.concat([...bodies, entries, end]);
}
