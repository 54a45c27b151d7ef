import { isJsonObject } from "../../shared/json.ts";

/** JSON text with the keys of every object in order: equal for equal payloads. */
export function canonicalJson(value: unknown): string {
  return JSON.stringify(ordered(value));
}

/** A copy whose objects have their keys in order; nesting is bounded where the value came in. */
function ordered(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(ordered);
  if (!isJsonObject(value)) return value;
  return Object.fromEntries(
    Object.keys(value)
      .sort()
      .map((key) => [key, ordered(value[key])]),
  );
}
