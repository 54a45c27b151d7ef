/** The parts of a JSON schema that say what a configuration key may hold. */
export interface JsonSchema {
  type?: string;
  format?: string;
  description?: string;
  default?: unknown;
  enum?: string[];
  const?: string;
  anyOf?: JsonSchema[];
  items?: JsonSchema;
  additionalProperties?: JsonSchema | boolean;
  minimum?: number;
  maximum?: number;
  minLength?: number;
  maxLength?: number;
}

/** What a value may be, in words: "integer, 0 to 65535", "list of text, at least 16 characters". */
export function describeType(schema: JsonSchema): string {
  if (schema.anyOf && !schema.type)
    return [...new Set(schema.anyOf.map(describeType))].join(" or ");
  if (schema.const !== undefined) return `\`${schema.const}\``;
  if (schema.enum) return schema.enum.map((value) => `\`${value}\``).join(" or ");
  switch (schema.type) {
    case "boolean":
      return "`true` or `false`";
    case "integer":
    case "number":
      return [schema.type, range(schema)].filter(Boolean).join(", ");
    case "array":
      return `list of ${describeType(schema.items ?? {})}`;
    case "object":
      if (typeof schema.additionalProperties !== "object") return "table";
      return schema.additionalProperties.type === "object" ? "table of tables" : "table of text";
    case "string":
    case undefined:
    default:
      return [schema.format === "uri" ? "URL" : "text", length(schema)].filter(Boolean).join(", ");
  }
}

function range({ minimum, maximum }: JsonSchema): string {
  const from = minimum === undefined || minimum <= Number.MIN_SAFE_INTEGER ? undefined : minimum;
  const to = maximum === undefined || maximum >= Number.MAX_SAFE_INTEGER ? undefined : maximum;
  if (from === undefined) return to === undefined ? "" : `at most ${to}`;
  return to === undefined ? `at least ${from}` : `${from} to ${to}`;
}

function length({ minLength = 0, maxLength }: JsonSchema): string {
  if (maxLength !== undefined) return `at most ${maxLength} characters`;
  return minLength > 1 ? `at least ${minLength} characters` : "";
}
