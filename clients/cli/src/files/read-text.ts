import { fstatSync, readFileSync } from "node:fs";
import { buffer } from "node:stream/consumers";
import { UsageError } from "../exit.ts";

/**
 * The text of a file, or of standard input as "-".
 *
 * @param otherwise What the person can do if it is not text.
 */
export async function readText(file: string, otherwise = "save it as UTF-8"): Promise<string> {
  const bytes = file === "-" ? await buffer(process.stdin) : read(file);
  try {
    // Keeps a byte order mark, as Python does.
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    const name = file === "-" ? "standard input" : file;
    throw new UsageError(`${name} is not UTF-8 text: ${otherwise}`);
  }
}

function read(file: string): Buffer {
  try {
    return readFileSync(file);
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    if (code === "ENOENT") throw new UsageError(`there is no file ${file}`);
    if (code === "EISDIR") throw new UsageError(`${file} is a folder`);
    throw new UsageError(`${file} cannot be read: ${message}`);
  }
}

/** Whether standard input may have bytes. Reads none. */
export function standardInput(): { hasBytes: boolean } {
  try {
    const found = fstatSync(0);
    return { hasBytes: found.isFIFO() || found.isSocket() || (found.isFile() && found.size > 0) };
  } catch {
    return { hasBytes: false };
  }
}
