import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { createVitest, type TestCase } from "vitest/node";
import { contractTable } from "../../api/testing/contract-table.ts";
import type { Row } from "../../api/testing/contract/row.ts";

/** A test that a page names as `file`: title. */
export interface NamedTest {
  file: string;
  title: string;
}

/** The tests that a page's tables name, as `` `file`: title · `file`: title ``. */
export function namedTests(page: string): NamedTest[] {
  return [...page.matchAll(/`([\w/.-]+\.ts)`: (.+?)(?= · | \|\n)/g)].map(
    ([, file = "", title = ""]) => ({ file, title }),
  );
}

/**
 * Those of the named tests that their file does not run. "…" in a title stands for anything; a value of a table's
 * row stands where the file's title has its placeholder.
 */
export async function missingTests(named: readonly NamedTest[]): Promise<NamedTest[]> {
  const titles = await collectTitles([...new Set(named.map(({ file }) => file))]);
  return named.filter(({ file, title }) => {
    const source = readFileSync(file, "utf8");
    return !titles.get(file)?.some((found) => isTitle(found, title, source));
  });
}

/** The titles of the tests that each file runs, and of their suites: those skipped, or mentioned elsewhere, are not among them. */
export async function collectTitles(files: readonly string[]): Promise<Map<string, string[]>> {
  const parsed = await parseTitles(files.filter((file) => !isContract(file)));
  const rows = files
    .filter(isContract)
    .map(async (file) => [file, await ruleTitles(file)] as const);
  return new Map([...parsed, ...(await Promise.all(rows))]);
}

const isContract = (file: string): boolean => file.startsWith("api/testing/contract/");

/** As Vitest itself finds them, without running the files. A title with parameters is as it stands there. */
async function parseTitles(files: readonly string[]): Promise<[string, string[]][]> {
  const vitest = await createVitest("test", { watch: false, reporters: [] });
  try {
    const project = vitest.projects[0]!;
    const modules = await vitest.parseSpecifications(
      files.map((file) => project.createSpecification(resolve(file))),
    );
    return modules.map((module, i) => {
      const tests = [...module.children.allTests()].filter(({ options }) => options.mode === "run");
      return [files[i]!, [...new Set(tests.flatMap(withItsSuites))]];
    });
  } finally {
    await vitest.close();
  }
}

/** The titles of a test and of the suites that it is in. */
function withItsSuites(test: TestCase): string[] {
  const titles = [test.name];
  for (let at = test.parent; at.type === "suite"; at = at.parent) titles.push(at.name);
  return titles;
}

/** The rules of the contract's table that this file states. */
async function ruleTitles(file: string): Promise<string[]> {
  const stated = Object.values((await import(resolve(file))) as Record<string, unknown>).flat();
  const tested = new Set<unknown>(contractTable);
  return stated.filter((row): row is Row => tested.has(row)).map(({ rule }) => rule);
}

function isTitle(found: string, title: string, source: string): boolean {
  if (patternOf(title, /…/).test(found)) return true;
  const values = patternOf(found, PLACEHOLDER).exec(title)?.slice(1) ?? [];
  return values.length > 0 && values.every((value) => value === "…" || quotes(source, value));
}

/** What `test.each` fills in. */
const PLACEHOLDER = /%[sidjo]|\$\w+/;

/** Matches this text with anything in the places of `gap`, which it captures. */
function patternOf(text: string, gap: RegExp): RegExp {
  const parts = text.split(gap).map((part) => part.replaceAll(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  return new RegExp(`^${parts.join("(.*)")}$`);
}

function quotes(source: string, value: string): boolean {
  return [`"${value}"`, `\`${value}\``, `'${value}'`].some((quoted) => source.includes(quoted));
}
