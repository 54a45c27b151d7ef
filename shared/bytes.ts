const unitBytes = { b: 1, k: 1024, m: 1024 ** 2, g: 1024 ** 3 } as const;

/** Converts a size like "512m" to bytes, as the engine does. Units: b, k, m, g; no unit means bytes. */
export function parseBytes(text: string): number {
  const match = /^([0-9]+)([bkmg]?)$/i.exec(text);
  if (!match) throw new RangeError(`not a size: ${text}`);
  const unit = (match[2] || "b").toLowerCase() as keyof typeof unitBytes;
  return Number(match[1]) * unitBytes[unit];
}

export function concatBytes(parts: Uint8Array[]): Uint8Array<ArrayBuffer> {
  const whole = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

/** Decodes UTF-8. A byte order mark is kept; invalid bytes become U+FFFD. */
export function decodeUtf8(bytes: Uint8Array): string {
  return new TextDecoder("utf-8", { ignoreBOM: true, fatal: false }).decode(bytes);
}

/** Node's own way is many times faster than a loop. */
const { Buffer: native } = globalThis as {
  Buffer?: {
    from(bytes: ArrayBufferLike, at: number, size: number): { toString(as: "base64"): string };
  };
};

export function base64(bytes: Uint8Array): string {
  if (native) return native.from(bytes.buffer, bytes.byteOffset, bytes.length).toString("base64");
  let text = "";
  for (let at = 0; at < bytes.length; at += 8192) {
    text += String.fromCharCode(...bytes.subarray(at, at + 8192));
  }
  return btoa(text);
}

/** Base64 for URLs and file names, without padding. */
export const base64url = (bytes: Uint8Array): string =>
  base64(bytes).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");

const hexDigits = new TextEncoder().encode("0123456789abcdef");

/** A string for each byte would block the thread for seconds where there are many. */
export function hex(bytes: Uint8Array): string {
  const digits = new Uint8Array(2 * bytes.length);
  bytes.forEach((byte, n) => {
    digits[2 * n] = hexDigits[byte >> 4]!;
    digits[2 * n + 1] = hexDigits[byte & 15]!;
  });
  return new TextDecoder().decode(digits);
}

export function fromBase64(text: string): Uint8Array<ArrayBuffer> {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}
