import { concatBytes } from "./bytes.ts";
import { letOthersRun } from "./turns.ts";

/** A JSON object as received. */
export type JsonObject = { [key: string]: unknown };

/** The text is malformed, or exceeds a bound; `path` is the field at fault, if there is one. */
export class JsonError extends Error {
  override name = "JsonError";
  readonly path: string;
  readonly isMalformed: boolean;

  constructor(message: string, path: string, isMalformed: boolean) {
    super(message);
    this.path = path;
    this.isMalformed = isMalformed;
  }
}

/** A JSON text that stands for its value. It was checked before, and is written as it is. */
export class JsonText {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

/** `JSON` with the parts of ES2026 that the engines have and the compiler's library lacks. */
const json = JSON as unknown as {
  rawJSON(text: string): unknown;
  isRawJSON(value: unknown): value is { rawJSON: string };
};

/** What a JSON text may have. Each bound is checked while the text is read. */
export interface JsonBounds {
  /** Nesting of arrays and objects. It is bounded because recursive code reads the values later. */
  readonly depth: number;
  /** Keys and values, arrays and objects included. */
  readonly values?: number;
  /**
   * Members named `key` in objects that are nested `depth` deep. Together they may have `values` keys and values, which
   * do not count for the bound of the whole text. With `isExact`, their numbers stay as they were written, even if
   * others do not.
   */
  readonly roomy?: {
    readonly key: string;
    readonly depth: number;
    readonly values: number;
    readonly isExact?: boolean;
  };
  /** Whether a number may be too large for a double; default: yes. */
  readonly isFinite?: boolean;
}

/** The most keys of one object. Making and sorting a larger one takes long. */
const objectKeysMax = 100_000;

/** Values that are read or written without a pause: a few milliseconds. */
const valuesAtOnce = 4096;
/** So many characters take as long as one value. */
const charactersOfValue = 64;
/** Longer strings are read in pieces. */
const longString = 1024;

/**
 * Parses JSON so that `JSON.stringify` of the value gives back every number as it was written:
 * Python tells `1.0` from `1`, and 12345678901234567890 does not fit a double. Such numbers become
 * `JSON.rawJSON` objects.
 *
 * @throws JsonError on malformed text, or when the text exceeds a bound.
 */
export function parseJson(text: string, bounds: JsonBounds): unknown {
  return atOnce(reading(text, bounds, toNumber));
}

/** Parses JSON with all numbers as plain numbers, as `JSON.parse` does. */
export function parsePlainJson(text: string, bounds: JsonBounds): unknown {
  return atOnce(reading(text, bounds, Number));
}

/** `parseJson` for large texts: it pauses to let other work run. */
export function parseJsonInPieces(text: string, bounds: JsonBounds): Promise<unknown> {
  return inPieces(reading(text, bounds, toNumber));
}

/** `parsePlainJson` for large texts, in the same way. */
export function parsePlainJsonInPieces(text: string, bounds: JsonBounds): Promise<unknown> {
  return inPieces(reading(text, bounds, Number));
}

/** Checks a text, in pieces, without making its value. @returns The first character. @throws JsonError as `parseJson` does. */
export async function checkJson(text: string, bounds: JsonBounds): Promise<string> {
  await inPieces(reading(text, bounds, undefined));
  return text.trimStart().charAt(0);
}

/** A text without its byte order mark, which JSON does not allow. */
export const withoutMark = (text: string): string => text.replace(/^\ufeff/, "");

/** Does work without a pause. */
function atOnce<T>(work: Generator<unknown, T>): T {
  for (;;) {
    const step = work.next();
    if (step.done) return step.value;
  }
}

/** Does work in pieces, so that the thread is free between them. */
async function inPieces<T>(
  work: Generator<string | undefined, T>,
  take: (piece: string) => void = () => {},
): Promise<T> {
  for (;;) {
    const step = work.next();
    if (step.done) return step.value;
    if (step.value) take(step.value);
    await letOthersRun();
  }
}

/** An array or object that has been read in part. */
interface Open {
  /** Undefined if no value is made. */
  readonly value: unknown[] | JsonObject | undefined;
  readonly isArray: boolean;
  count: number;
  key: string;
}

/** Longer texts are read by `reading` alone. */
const shortText = 2048;
/** A double may not reproduce such a numeral, or have no room for it. Others have at most 14 digits. */
const unusualNumeral = /\d[eE]|\d\.\d*0(?!\d)|-0|[\d.]{16}|\.000000/;

/** Whether `JSON.parse` gives the value of a text: it takes less CPU time, but knows no bounds. */
function isOrdinary(text: string, bounds: JsonBounds, number: unknown): boolean {
  const { depth, values = Infinity, roomy, isFinite: mustBeFinite } = bounds;
  const { length } = text;
  if (length > Math.min(shortText, values, roomy?.values ?? Infinity)) return false;
  const isExact = number === toNumber || mustBeFinite || roomy?.isExact;
  if (isExact && unusualNumeral.test(text)) return false;
  return (text.match(/[[{]/g)?.length ?? 0) <= depth;
}

/** @param number Makes a number from its numeral; undefined: no value is made. */
function* reading(
  text: string,
  bounds: JsonBounds,
  number: ((numeral: string) => unknown) | undefined,
): Generator<undefined, unknown> {
  if (isOrdinary(text, bounds, number)) {
    try {
      return JSON.parse(text) as unknown;
    } catch {
      // What is wrong, and where, is found below.
    }
  }
  const { depth, values: valuesMax = Infinity, roomy, isFinite: mustBeFinite = false } = bounds;
  const open: Open[] = [];
  let at = 0;
  let values = 0;
  let roomyValues = 0;
  let isRoomy = false;
  let work = 0;

  const pathOf = (most: number): string =>
    open
      .slice(0, most)
      .map((one) => (one.isArray ? one.count : one.key))
      .join(".");
  const pathDepth = roomy?.depth ?? 1;
  const refuse = (problem: string): JsonError => new JsonError(problem, pathOf(pathDepth), false);
  const wrong = (expected: string): JsonError => {
    const found = at < text.length ? JSON.stringify(text.slice(at, at + 20)) : "its end";
    const problem = `${expected} is missing at position ${at}, before ${found}`;
    return new JsonError(problem, pathOf(pathDepth), true);
  };
  const count = (): void => {
    if (isRoomy ? ++roomyValues > roomy!.values : ++values > valuesMax) {
      throw refuse(tooManyValues(isRoomy ? roomy!.values : valuesMax));
    }
    work++;
  };
  const skipSpace = (): number => {
    for (;;) {
      const c = text.charCodeAt(at);
      if (c !== SPACE && c !== NEWLINE && c !== RETURN && c !== TAB) return c;
      at++;
    }
  };
  /** Undefined if the string is long: then its end is looked for in pieces. */
  const readShortString = (): string | undefined => {
    let isPlain = true;
    for (let end = at + 1; end < at + longString; end++) {
      const c = text.charCodeAt(end);
      if (c === QUOTE) return takeString(end, isPlain);
      if (c === BACKSLASH) end++;
      if (c === BACKSLASH || c < SPACE) isPlain = false;
    }
    return undefined;
  };
  const takeString = (end: number, isPlain: boolean): string => {
    work += (end - at) / charactersOfValue;
    let string;
    try {
      string = isPlain ? text.slice(at + 1, end) : (JSON.parse(text.slice(at, end + 1)) as string);
    } catch {
      throw wrong("a valid string");
    }
    at = end + 1;
    return string;
  };
  const readLongString = function* (): Generator<undefined, string> {
    for (let end = at + 1; ;) {
      const stop = end + valuesAtOnce * charactersOfValue;
      for (; end < stop; end++) {
        const c = text.charCodeAt(end);
        if (c === QUOTE) return takeString(end, false);
        if (c === BACKSLASH) end++;
        if (end >= text.length) throw wrong("a valid string");
      }
      yield;
    }
  };
  const readNumeral = (): unknown => {
    const from = at;
    while (isInNumber(text.charCodeAt(at))) at++;
    const numeral = text.slice(from, at);
    work += numeral.length / charactersOfValue;
    if (!isNumeral(numeral)) {
      at = from;
      throw wrong("a valid number");
    }
    if (mustBeFinite && Math.abs(Number(numeral)) === Infinity) {
      throw refuse("it has a number that is too large for a double");
    }
    return isRoomy && roomy!.isExact ? toNumber(numeral) : number?.(numeral);
  };
  const readLiteral = (): unknown => {
    for (const [name, value] of literals) {
      if (!text.startsWith(name, at)) continue;
      at += name.length;
      return value;
    }
    throw wrong("a value");
  };
  const readKey = function* (object: Open): Generator<undefined> {
    if (skipSpace() !== QUOTE) throw wrong("a key");
    object.key = readShortString() ?? (yield* readLongString());
    isRoomy ||= open.length === roomy?.depth && object.key === roomy.key;
    count();
    if (object.count === objectKeysMax)
      throw refuse(`it has an object of more than ${objectKeysMax} keys`);
    if (skipSpace() !== COLON) throw wrong('a ":"');
    at++;
  };

  for (;;) {
    const c = skipSpace();
    let value: unknown;
    count();
    if (work > valuesAtOnce) {
      work = 0;
      yield;
    }
    if (c === OPEN_BRACE || c === OPEN_BRACKET) {
      const isArray = c === OPEN_BRACKET;
      if (open.length === depth) throw refuse(`it is nested more than ${depth} deep`);
      const begun = { value: number && (isArray ? [] : {}), isArray, count: 0, key: "" };
      at++;
      if (skipSpace() !== (isArray ? CLOSE_BRACKET : CLOSE_BRACE)) {
        open.push(begun);
        if (!isArray) yield* readKey(begun);
        continue;
      }
      at++;
      value = begun.value;
    } else if (c === QUOTE) value = readShortString() ?? (yield* readLongString());
    else if (c === MINUS || isDigit(c)) value = readNumeral();
    else value = readLiteral();

    for (;;) {
      const inner = open.at(-1);
      if (inner === undefined) {
        skipSpace();
        if (at < text.length) throw wrong("the end");
        return value;
      }
      if (inner.value !== undefined) put(inner.value, inner.key, value);
      inner.count++;
      if (open.length === roomy?.depth) isRoomy = false;
      const next = skipSpace();
      if (next === COMMA) {
        at++;
        if (!inner.isArray) yield* readKey(inner);
        break;
      }
      if (next !== (inner.isArray ? CLOSE_BRACKET : CLOSE_BRACE)) {
        throw wrong(inner.isArray ? 'a "," or "]"' : 'a "," or "}"');
      }
      at++;
      open.pop();
      value = inner.value;
    }
  }
}

/** Sets a member as JSON.parse does. */
function put(into: unknown[] | JsonObject, key: string, value: unknown): void {
  if (Array.isArray(into)) into.push(value);
  else if (key !== "__proto__") into[key] = value;
  else
    Object.defineProperty(into, key, {
      value,
      configurable: true,
      enumerable: true,
      writable: true,
    });
}

const literals = [
  ["true", true],
  ["false", false],
  ["null", null],
] as const;

/** The number of a numeral; one that a double would not reproduce is kept as it is. */
function toNumber(numeral: string): unknown {
  const value = Number(numeral);
  return String(value) === numeral ? value : json.rawJSON(numeral);
}

/** Whether a text is a numeral of JSON: `JSON.rawJSON` refuses any other. */
function isNumeral(text: string): boolean {
  if (text.length < MAX_SAFE_DIGITS && String(Number(text)) === text) return true;
  try {
    json.rawJSON(text);
    return true;
  } catch {
    return false;
  }
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

const tooManyValues = (limit: number): string => `it has more than ${limit} keys and values`;

/** Writes a value as `JSON.stringify` does, and each `JsonText` in it as it is. */
export function writeJson(value: unknown): string {
  return textOf(writing(value, false));
}

/** Writes JSON with sorted keys, so that equal values give equal text. */
export function canonicalJson(value: unknown): string {
  return textOf(writing(value, true));
}

/** `writeJson` for large values, as bytes: it pauses to let other work run. */
export function writeJsonInPieces(value: unknown): Promise<Uint8Array<ArrayBuffer>> {
  return bytesInPieces(writing(value, false));
}

/** `canonicalJson` for large values, in the same way. */
export function canonicalJsonInPieces(value: unknown): Promise<Uint8Array<ArrayBuffer>> {
  return bytesInPieces(writing(value, true));
}

function textOf(texts: Generator<string, string>): string {
  let whole = "";
  for (;;) {
    const { done, value } = texts.next();
    whole += value;
    if (done) return whole;
  }
}

async function bytesInPieces(texts: Generator<string, string>): Promise<Uint8Array<ArrayBuffer>> {
  const utf8 = new TextEncoder();
  const parts: Uint8Array[] = [];
  const last = utf8.encode(await inPieces(texts, (text) => parts.push(utf8.encode(text))));
  return parts.length === 0 ? last : concatBytes([...parts, last]);
}

/** What is left to write of an array or object. */
interface Rest {
  readonly value: unknown[] | JsonObject;
  /** Undefined for an array. */
  readonly keys: string[] | undefined;
  at: number;
  isFirst: boolean;
}

/** Yields pieces of the text, and returns the last one. */
function* writing(whole: unknown, isSorted: boolean): Generator<string, string> {
  const open: Rest[] = [];
  let text = "";
  let work = 0;
  let value = whole;
  for (;;) {
    if (value instanceof JsonText) text += value.text;
    else if (typeof value === "object" && value !== null && !json.isRawJSON(value)) {
      const keys = Array.isArray(value) ? undefined : Object.keys(value);
      if (isSorted && keys !== undefined) yield* sortKeys(keys);
      open.push({ value: value as JsonObject, keys, at: 0, isFirst: true });
      text += keys === undefined ? "[" : "{";
    } else if (typeof value === "string" && value.length > longText) {
      yield text;
      text = yield* writingLong(value);
    } else text += JSON.stringify(value) ?? "null";
    for (;;) {
      if (++work > valuesAtOnce || text.length > longText) {
        yield text;
        text = "";
        work = 0;
      }
      const rest = open.at(-1);
      if (rest === undefined) return text;
      const n = rest.at++;
      if (n >= (rest.keys ?? (rest.value as unknown[])).length) {
        text += rest.keys === undefined ? "]" : "}";
        open.pop();
        continue;
      }
      const key = rest.keys?.[n];
      value = key === undefined ? (rest.value as unknown[])[n] : (rest.value as JsonObject)[key];
      if (key !== undefined && value === undefined) continue;
      if (!rest.isFirst) text += ",";
      rest.isFirst = false;
      if (key !== undefined) text += `${JSON.stringify(key)}:`;
      break;
    }
  }
}

/** The most characters of a text that are written without a pause. */
const longText = valuesAtOnce * charactersOfValue;

function* writingLong(text: string): Generator<string, string> {
  let start = '"';
  for (let from = 0; from < text.length;) {
    let to = from + longText;
    // A pair of surrogates is not split: JSON escapes a lone one.
    if (isHighSurrogate(text.charCodeAt(to - 1))) to++;
    yield start + JSON.stringify(text.slice(from, to)).slice(1, -1);
    [start, from] = ["", to];
  }
  return '"';
}

const isHighSurrogate = (c: number): boolean => c >= 0xd800 && c < 0xdc00;

/** The most keys that are sorted without a pause: a few milliseconds. */
const keysAtOnce = 4096;

/** Sorts keys in place. Keys that look like array indices stay in front, because every object lists them first. */
function* sortKeys(keys: string[]): Generator<string, void> {
  const named = keys.findIndex((key) => !isIndex(key));
  if (named === -1) return;
  if (keys.length <= keysAtOnce) {
    keys.splice(named, keys.length, ...keys.slice(named).sort());
    return;
  }
  let runs: string[][] = [];
  for (let from = named; from < keys.length; from += keysAtOnce) {
    runs.push(keys.slice(from, from + keysAtOnce).sort());
    yield "";
  }
  while (runs.length > 1) {
    const merged: string[][] = [];
    for (let n = 0; n < runs.length; n += 2) merged.push(yield* merge(runs[n]!, runs[n + 1] ?? []));
    runs = merged;
  }
  runs[0]!.forEach((key, n) => (keys[named + n] = key));
}

function* merge(some: string[], others: string[]): Generator<string, string[]> {
  const all: string[] = [];
  for (let [n, m] = [0, 0]; n < some.length || m < others.length;) {
    const isNext = m === others.length || (n < some.length && some[n]! < others[m]!);
    all.push(isNext ? some[n++]! : others[m++]!);
    if (all.length % (4 * keysAtOnce) === 0) yield "";
  }
  return all;
}

/** Whether objects list this key before all others, ordered by number. */
function isIndex(key: string): boolean {
  return /^(0|[1-9]\d{0,9})$/.test(key) && Number(key) < 2 ** 32 - 1;
}

/** Characters that a number can contain. The letters in `true` and `false` never follow a digit. */
function isInNumber(c: number): boolean {
  return isDigit(c) || c === DOT || c === LOWER_E || c === UPPER_E || c === MINUS || c === PLUS;
}

function isDigit(c: number): boolean {
  return c >= ZERO && c <= NINE;
}

/** An integer with at most this many digits is below 2^53. */
const MAX_SAFE_DIGITS = 15;
const [TAB, NEWLINE, RETURN, SPACE] = [0x09, 0x0a, 0x0d, 0x20];
const [PLUS, COMMA, MINUS, DOT, COLON] = [0x2b, 0x2c, 0x2d, 0x2e, 0x3a];
const [ZERO, NINE, UPPER_E, LOWER_E] = [0x30, 0x39, 0x45, 0x65];
const [QUOTE, BACKSLASH] = [0x22, 0x5c];
const [OPEN_BRACKET, CLOSE_BRACKET, OPEN_BRACE, CLOSE_BRACE] = [0x5b, 0x5d, 0x7b, 0x7d];
