/** A JSON object as it came over the wire. */
export type JsonObject = { [key: string]: unknown };

export class JsonError extends Error {
  override name = "JsonError";
}

/** `JSON` with the parts of ES2026 that the engines have and the compiler's library lacks. */
const json = JSON as unknown as {
  parse(
    text: string,
    reviver: (key: string, value: unknown, context: { source?: string }) => unknown,
  ): unknown;
  rawJSON(text: string): unknown;
  isRawJSON(value: unknown): value is { rawJSON: string };
};

/**
 * Parses JSON so that `JSON.stringify` of the value gives back every number as it was written:
 * Python tells `1.0` from `1`, and 12345678901234567890 does not fit a double. Such numbers become
 * `JSON.rawJSON` objects.
 *
 * @throws JsonError on malformed text, or on nesting deeper than `maxDepth`, which would overflow
 *   the stack of a recursive reader.
 */
export function parseJson(text: string, maxDepth: number): unknown {
  const { depth, hasPlainNumbers } = scan(text);
  if (depth > maxDepth) throw new JsonError(`nested ${depth} deep; the limit is ${maxDepth}`);
  try {
    // A reviver makes parsing ten times slower.
    if (hasPlainNumbers) return JSON.parse(text);
    return json.parse(text, (_key, value, { source }) =>
      typeof value === "number" && source !== undefined && String(value) !== source
        ? json.rawJSON(source)
        : value,
    );
  } catch (cause) {
    throw new JsonError(cause instanceof Error ? cause.message : String(cause), { cause });
  }
}

export function isJsonObject(value: unknown): value is JsonObject {
  return (
    typeof value === "object" && value !== null && !Array.isArray(value) && !json.isRawJSON(value)
  );
}

/** The plain number of a value that `parseJson` kept as it was written; other values unchanged. */
export function plainNumber(value: unknown): unknown {
  return json.isRawJSON(value) ? Number(value.rawJSON) : value;
}

/** The deepest nesting of arrays and objects in `text`, which need not be well formed. */
export function jsonDepth(text: string): number {
  return scan(text).depth;
}

/** The deepest nesting, and whether every number is written as `JSON.stringify` would write it. */
function scan(text: string): { depth: number; hasPlainNumbers: boolean } {
  let hasPlainNumbers = true;
  let depth = 0;
  let deepest = 0;
  let inString = false;
  for (let i = 0; i < text.length; i++) {
    const c = text.charCodeAt(i);
    if (inString) {
      if (c === BACKSLASH) i++;
      else if (c === QUOTE) inString = false;
    } else if (c === QUOTE) inString = true;
    else if (c === OPEN_BRACE || c === OPEN_BRACKET) deepest = Math.max(deepest, ++depth);
    else if (c === CLOSE_BRACE || c === CLOSE_BRACKET) depth--;
    else if (hasPlainNumbers && (isDigit(c) || c === MINUS)) {
      const from = i;
      let hasDigitsOnly = c !== MINUS;
      for (let next; isInNumber((next = text.charCodeAt(i + 1))); i++) {
        if (!isDigit(next)) hasDigitsOnly = false;
      }
      const isShort = hasDigitsOnly && i - from < MAX_SAFE_DIGITS;
      if (!isShort) {
        const token = text.slice(from, i + 1);
        hasPlainNumbers = String(Number(token)) === token;
      }
    }
  }
  return { depth: deepest, hasPlainNumbers };
}

/** What can stand in a number; the letters in `true` and `false` never follow a digit. */
function isInNumber(c: number): boolean {
  return isDigit(c) || c === DOT || c === LOWER_E || c === UPPER_E || c === MINUS || c === PLUS;
}

function isDigit(c: number): boolean {
  return c >= ZERO && c <= NINE;
}

/** As many digits never pass 2^53. */
const MAX_SAFE_DIGITS = 15;
const MINUS = 0x2d;
const PLUS = 0x2b;
const DOT = 0x2e;
const ZERO = 0x30;
const NINE = 0x39;
const UPPER_E = 0x45;
const LOWER_E = 0x65;

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const OPEN_BRACKET = 0x5b;
const CLOSE_BRACKET = 0x5d;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;
