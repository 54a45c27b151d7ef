/** A JSON object as received. */
export type JsonObject = { [key: string]: unknown };

export class JsonError extends Error {
  override name = "JsonError";
}

/** `JSON` with the parts of ES2026 that the engines have and the compiler's library lacks. */
const json = JSON as unknown as {
  rawJSON(text: string): unknown;
  isRawJSON(value: unknown): value is { rawJSON: string };
};

/**
 * Parses JSON so that `JSON.stringify` of the value gives back every number as it was written:
 * Python tells `1.0` from `1`, and 12345678901234567890 does not fit a double. Such numbers become
 * `JSON.rawJSON` objects.
 *
 * @throws JsonError on malformed text; on nesting deeper than `maxDepth`, which would overflow the
 *   stack of a recursive reader; on more keys and values than `maxValues`.
 */
export function parseJson(text: string, maxDepth: number, maxValues = Infinity): unknown {
  const numerals = oddNumerals(text);
  const { depth, values } = measureJson(text, numerals.add);
  if (depth > maxDepth) throw new JsonError(`nested ${depth} deep; the limit is ${maxDepth}`);
  if (values > maxValues) throw new JsonError(tooManyValues(values, maxValues));
  try {
    return numerals.parse();
  } catch (cause) {
    throw new JsonError(cause instanceof Error ? cause.message : String(cause), { cause });
  }
}

/**
 * Parses a text and keeps its odd numerals: those that a double would not reproduce. The parser gets
 * a placeholder number for each of them, one that no other numeral has. A reviver that receives the
 * source of each number would block the thread for 15 s on 10 MiB of small objects and one `1.0`.
 */
function oddNumerals(text: string) {
  const numbers: unknown[] = [];
  const positions = new Map<string, number>();
  const parts: string[] = [];
  let end = 0;
  let isExact = true;

  const positionOf = (numeral: string): number => {
    const known = positions.get(numeral);
    if (known !== undefined) return known;
    const value = Number(numeral);
    const isPlain = String(value) === numeral;
    if (isPlain && Math.abs(value) < FIRST_PLACEHOLDER) return -1;
    if (!isPlain) isExact = false;
    const position = numbers.push(isPlain ? value : numeral) - 1;
    if (positions.size < PLACEHOLDERS_KNOWN) positions.set(numeral, position);
    return position;
  };
  const unmark = (value: unknown): unknown => {
    if (typeof value === "number" && value >= FIRST_PLACEHOLDER)
      return numbers[value - FIRST_PLACEHOLDER];
    if (typeof value !== "object" || value === null) return value;
    if (Array.isArray(value)) {
      for (let i = 0; i < value.length; i++) value[i] = unmark(value[i]);
      return value;
    }
    const object = value as JsonObject;
    for (const key of Object.keys(object)) object[key] = unmark(object[key]);
    return object;
  };

  const add = (from: number, to: number): void => {
    const position = positionOf(text.slice(from, to));
    if (position === -1) return;
    parts.push(text.slice(end, from), String(FIRST_PLACEHOLDER + position));
    end = to;
  };
  const parse = (): unknown => {
    if (isExact) return JSON.parse(text);
    try {
      const value: unknown = JSON.parse(parts.join("") + text.slice(end));
      numbers.forEach((numeral, position) => {
        if (typeof numeral === "string") numbers[position] = json.rawJSON(numeral);
      });
      return unmark(value);
    } catch {
      // Parsing the original text makes the error message quote it, not a placeholder.
      return JSON.parse(text);
    }
  };
  return { add, parse };
}

export function isJsonObject(value: unknown): value is JsonObject {
  return (
    typeof value === "object" && value !== null && !Array.isArray(value) && !json.isRawJSON(value)
  );
}

/** Converts a number that `parseJson` kept as written to a plain number; returns other values unchanged. */
export function plainNumber(value: unknown): unknown {
  return json.isRawJSON(value) ? Number(value.rawJSON) : value;
}

export const tooManyValues = (values: number, limit: number): string =>
  `it holds ${values} keys and values; the limit is ${limit}`;

/** Measures a JSON text, which need not be well formed. */
export type JsonMeasure = {
  /** The deepest nesting of arrays and objects. */
  readonly depth: number;
  /** Keys and values, arrays and objects included. */
  readonly values: number;
};

/** @param onNumeral Called with each numeral that `JSON.stringify` might write differently. */
export function measureJson(
  text: string,
  onNumeral: (from: number, to: number) => void = () => {},
): JsonMeasure {
  let depth = 0;
  let deepest = 0;
  let values = 0;
  let inString = false;
  for (let i = 0; i < text.length; i++) {
    const c = text.charCodeAt(i);
    if (inString) {
      if (c === BACKSLASH) i++;
      else if (c === QUOTE) inString = false;
    } else if (c === QUOTE) {
      inString = true;
      values++;
    } else if (c === OPEN_BRACE || c === OPEN_BRACKET) {
      deepest = Math.max(deepest, ++depth);
      values++;
    } else if (c === CLOSE_BRACE || c === CLOSE_BRACKET) depth--;
    else if (isDigit(c) || c === MINUS) {
      values++;
      const from = i;
      let hasDigitsOnly = c !== MINUS;
      for (let next; isInNumber((next = text.charCodeAt(i + 1))); i++) {
        if (!isDigit(next)) hasDigitsOnly = false;
      }
      const isShort = hasDigitsOnly && i - from < MAX_SAFE_DIGITS;
      if (!isShort) onNumeral(from, i + 1);
    } else if (c === LOWER_T || c === LOWER_F || c === LOWER_N) values++;
  }
  return { depth: deepest, values };
}

/** Characters that a number can contain. The letters in `true` and `false` never follow a digit. */
function isInNumber(c: number): boolean {
  return isDigit(c) || c === DOT || c === LOWER_E || c === UPPER_E || c === MINUS || c === PLUS;
}

function isDigit(c: number): boolean {
  return c >= ZERO && c <= NINE;
}

/** First placeholder number. A numeral of this value or above gets a placeholder, too. */
const FIRST_PLACEHOLDER = 1e15;
/** Numerals that are remembered by their text, so that a repeated one reuses its placeholder. */
const PLACEHOLDERS_KNOWN = 1000;
/** An integer with at most this many digits is below 2^53. */
const MAX_SAFE_DIGITS = 15;
const MINUS = 0x2d;
const PLUS = 0x2b;
const DOT = 0x2e;
const ZERO = 0x30;
const NINE = 0x39;
const UPPER_E = 0x45;
const LOWER_E = 0x65;
/** The first letters of `true`, `false` and `null`. None of these letters occurs again in these words. */
const LOWER_T = 0x74;
const LOWER_F = 0x66;
const LOWER_N = 0x6e;

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const OPEN_BRACKET = 0x5b;
const CLOSE_BRACKET = 0x5d;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;
