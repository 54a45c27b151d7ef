import { createHash } from "node:crypto";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { strToU8, zipSync } from "fflate";

/** A package of one module, as a wheel (PEP 427). */
export interface Wheel {
  readonly name: string;
  readonly version: string;
  /** Source of the module. */
  readonly source: string;
  /** Its requirements. */
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
  files[`${info}/RECORD`] = [...record, `${info}/RECORD,,`, ""].join("\n");
  const zipped: Record<string, Uint8Array> = {};
  for (const [path, text] of Object.entries(files)) zipped[path] = strToU8(text);
  return Buffer.from(
    zipSync(zipped, { level: 0, mtime: new Date(2000, 0), os: 3, attrs: 0o644 << 16 }),
  );
}

/** Writes wheels into a folder, such as `pip_find_links` names. */
export function writeWheels(folder: string, ...wheels: Wheel[]): void {
  for (const wheel of wheels) writeFileSync(join(folder, wheelFile(wheel)), wheelBytes(wheel));
}
