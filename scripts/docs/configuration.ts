import { readFileSync } from "node:fs";
import { z } from "zod";
import { Config } from "../../shared/config/config.ts";
import { JobTypeDefinition } from "../../shared/wire/job-type.ts";
import { describeType, type JsonSchema } from "./describe-type.ts";
import { fillSections } from "./sections.ts";

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
