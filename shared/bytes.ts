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
