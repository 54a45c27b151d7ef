import { readFileSync } from "node:fs";
import { parse } from "smol-toml";
import { z } from "zod";
import { contractGroups, type Group } from "../../api/testing/contract-table.ts";
import type { Row } from "../../api/testing/contract/row.ts";
import { fillSections } from "./sections.ts";

export const contractFile = "docs/contract.md";

const Test = z.string().regex(/^[\w/.-]+\.ts: \S/, 'must be "file: title"');
const Statement = z.strictObject({ says: z.string(), tests: z.array(Test).min(1) });
const Section = z
  .object({ title: z.string() })
  .catchall(Statement)
  .transform(({ title, ...statements }) => ({ title, statements }));
type Section = z.infer<typeof Section>;

/** Sections and statements by their numbers. */
export const contractSections = z
  .record(z.string(), Section)
  .parse(parse(readFileSync("scripts/docs/contract.toml", "utf8")));

/** Text of docs/contract.md: statements come from contract.toml, rows from the contract's table. */
export function contractText(): string {
  return fillSections(readFileSync(contractFile, "utf8"), {
    statements: Object.entries(contractSections).map(sectionText).join("\n"),
    rows: contractGroups.map(groupText).join("\n"),
  });
}

function sectionText([number, { title, statements }]: [string, Section]): string {
  const lines = Object.entries(statements).map(
    ([n, { says, tests }]) => `| ${number}.${n} | ${says} | ${tests.map(testText).join(" · ")} |\n`,
  );
  return `## ${number}. ${title}\n\n| no. | statement | tests |\n|---|---|---|\n${lines.join("")}`;
}

/** "file: title" with the file as code. */
function testText(test: string): string {
  return test.replace(/^(\S+\.ts): /, "`$1`: ");
}

function groupText({ file, title, endpoints = [], rows }: Group): string {
  const about = endpoints.map((endpoint) => `\`${endpoint}\``).join(", ");
  const lines = Map.groupBy(rows, ({ rule, family = rule }) => family);
  return [
    `### ${title}\n\n`,
    `\`contract/${file}\`${about && `: ${about}`}\n\n`,
    ...[...lines].flatMap(([family, cases]) => familyLines(family, cases)),
  ].join("");
}

/** Few cases are listed one by one. */
function familyLines(family: string, cases: readonly Row[]): string[] {
  if (cases.length > 5) return [rowLine(`${family} (${cases.length} cases)`, cases[0]!)];
  return cases.map((row) => rowLine(row.rule, row));
}

function rowLine(title: string, { only }: Row): string {
  const where = only ? ` (only on ${only.on === "node" ? "Node" : only.on}: ${only.why})` : "";
  return `- ${title.replaceAll(MARKUP, String.raw`\$&`)}${where}\n`;
}

/** What Markdown would take for markup: tags, emphasis. */
const MARKUP = /[<*]|_(?=_)|(?<=_)_/g;
