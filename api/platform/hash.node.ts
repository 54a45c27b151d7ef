import { hash } from "node:crypto";
import { sha256 as inBackground } from "../hash.ts";

/** Above this size the hash is left to another thread, which costs some 50 µs; below, some 5 µs are spent here. */
const atOnceMax = 64 * 1024;

/** SHA-256 of text (as UTF-8) or bytes, in hex. */
export function sha256(data: string | Uint8Array): string | Promise<string> {
  return data.length > atOnceMax ? inBackground(data) : hash("sha256", data, "hex");
}
