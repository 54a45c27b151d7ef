import { readFileSync } from "node:fs";
import { z } from "zod";
import { Config } from "../../shared/config/config.ts";
import { JobTypeDefinition } from "../../shared/wire/job-types.ts";

export const configurationFile = "docs/configuration.md";
export const exampleFile = "docs/airlock.example.toml";

/** Text of docs/configuration.md: the tables come from the schema, the example from its file. */
export function configurationText(): string {
  return fillSections(readFileSync(configurationFile, "utf8"), {
    keys: table(
      ["key", "variable", "type", "default", "meaning"],
      fieldsOf(Config).map(({ name, ...rest }) => ({
        name,
        variable: code(`AIRLOCK_${name.toUpperCase()}`),
        ...rest,
      })),
    ),
    job_types: table(["key", "type", "default", "meaning"], fieldsOf(JobTypeDefinition)),
    example: `\`\`\`toml\n${readFileSync(exampleFile, "utf8")}\`\`\`\n`,
  });
}

interface Field {
  name: string;
  type: string;
  fallback: string;
  meaning: string;
}

function fieldsOf(schema: z.ZodObject): Field[] {
  const { properties = {} } = z.toJSONSchema(schema, { io: "input" });
  return Object.entries(properties as Record<string, JsonSchema>).map(([name, field]) => ({
    name,
    type: name === "job_types" ? "tables, see below" : describeType(field),
    fallback: field.default === undefined ? "" : code(JSON.stringify(field.default)),
    meaning: (field.description ?? "").replaceAll("<", "\\<"),
  }));
}

function table(titles: string[], rows: { name: string }[]): string {
  const lines = [
    titles,
    titles.map(() => "---"),
    ...rows.map(({ name, ...rest }) => [code(name), ...Object.values(rest)]),
  ];
  return lines.map((cells) => `| ${cells.join(" | ")} |\n`).join("");
}

function code(text: string): string {
  return `\`${text}\``;
}

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

/**
 * Text with the content of each `<!-- name:begin -->` … `<!-- name:end -->` replaced.
 *
 * @throws Error where a marker is missing.
 */
export function fillSections(text: string, sections: Record<string, string>): string {
  return Object.entries(sections).reduce((filled, [name, content]) => {
    const section = new RegExp(`(<!-- ${name}:begin -->\n)[^]*?(<!-- ${name}:end -->)`);
    if (!section.test(filled)) throw new Error(`the markers of "${name}" are missing`);
    return filled.replace(section, (_all, begin: string, end: string) => begin + content + end);
  }, text);
}
