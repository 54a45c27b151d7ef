import { isJsonObject, type JsonObject } from "../../shared/json.ts";

/** JSON text with the keys of every object in order: equal for equal payloads. */
export function canonicalJson(value: unknown): string {
  return JSON.stringify(value, (_key, inner: unknown) =>
    isJsonObject(inner) ? sorted(inner) : inner,
  );
}

function sorted(object: JsonObject): JsonObject {
  return Object.fromEntries(Object.entries(object).sort(([a], [b]) => (a < b ? -1 : 1)));
}
