import { isJsonObject } from "../../shared/json.ts";

/** Writes JSON with sorted keys, so that equal payloads give equal text. */
export function canonicalJson(value: unknown): string {
  return JSON.stringify(ordered(value));
}

/** Copies a value with sorted keys. Recursion is safe: nesting was limited when the value was parsed. */
function ordered(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(ordered);
  if (!isJsonObject(value)) return value;
  return Object.fromEntries(
    Object.keys(value)
      .sort()
      .map((key) => [key, ordered(value[key])]),
  );
}
