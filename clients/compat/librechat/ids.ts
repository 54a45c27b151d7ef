import { Refusal } from "../facade.ts";

/** What an id names: an execution, an upload of one or more files, or one of these files. */
const kinds = ["execution", "upload", "file"] as const;
export type Kind = (typeof kinds)[number];

const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const length = 21;

/**
 * Clients of LibreChat's service take ids of 21 letters, which are 126 bits. A UUIDv7 has 122 bits of its own; the
 * others say what it names.
 */
export function shortId(kind: Kind, uuid: string): string {
  const hex = uuid.replaceAll("-", "");
  const own = (BigInt(`0x${hex.slice(0, 12)}${hex.slice(13, 16)}`) << 62n) | low(hex);
  let bits = (BigInt(kinds.indexOf(kind)) << 122n) | own;
  let id = "";
  for (let n = 0; n < length; n++) {
    id = letters[Number(bits & 63n)] + id;
    bits >>= 6n;
  }
  return id;
}

const low = (hex: string): bigint => BigInt(`0x${hex.slice(16)}`) & ((1n << 62n) - 1n);

/** What an id names. @throws Refusal 404 if it is none of ours. */
export function readId(id: string): { kind: Kind; uuid: string } {
  let bits = 0n;
  for (const letter of id) bits = (bits << 6n) | BigInt(Math.max(0, letters.indexOf(letter)));
  const kind = kinds[Number(bits >> 122n)];
  if (!/^[A-Za-z0-9_-]{21}$/.test(id) || kind === undefined)
    throw new Refusal(404, `There is no ${id}.`);
  const high = ((bits >> 62n) & ((1n << 60n) - 1n)).toString(16).padStart(15, "0");
  const rest = ((bits & ((1n << 62n) - 1n)) | (2n << 62n)).toString(16);
  const hex = `${high.slice(0, 12)}7${high.slice(12)}${rest}`;
  return { kind, uuid: hex.replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-") };
}

/** The time in a UUIDv7. */
export function timeOf(uuid: string): Date {
  return new Date(Number.parseInt(uuid.replaceAll("-", "").slice(0, 12), 16));
}

/** A UUIDv7 of a time. With zeros as `random` it is the first one of that time. */
export function uuidAt(ms: number, random = new Uint8Array(10)): string {
  const tail = Array.from(random, (byte) => byte.toString(16).padStart(2, "0")).join("");
  const hex = ms.toString(16).padStart(12, "0");
  return `${hex.slice(0, 8)}-${hex.slice(8)}-7${tail.slice(0, 3)}-8${tail.slice(3, 6)}-${tail.slice(6, 18)}`;
}

/** The id of an execution's file: its name can be longer than an id. */
export async function nameId(name: string): Promise<string> {
  const hash = new Uint8Array(
    await crypto.subtle.digest("SHA-256", new TextEncoder().encode(name)),
  );
  return Array.from(hash.subarray(0, length), (byte) => letters[byte & 63]).join("");
}
