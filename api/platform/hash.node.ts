import { hash } from "node:crypto";
import { sha256 as inBackground } from "../hash.ts";

/** Above this size another thread computes the hash, which costs about 50 µs; below, this thread needs at most about 5 µs. */
const atOnceMax = 64 * 1024;

/** SHA-256 of text (as UTF-8) or bytes, in hex. */
export function sha256(data: string | Uint8Array): string | Promise<string> {
  return data.length > atOnceMax ? inBackground(data) : hash("sha256", data, "hex");
}
