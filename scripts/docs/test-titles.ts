import { globSync, readFileSync } from "node:fs";
import { resolve } from "node:path";
import { createVitest, type TestCase } from "vitest/node";
import { fillSections } from "./configuration.ts";

/** The title of a test after those of the suites that it is in. A title with parameters is as it stands in the file. */
type TitlePath = readonly string[];

/** What `test.each` or a template fills in. */
export const PLACEHOLDER = /%[sidjo]|\$\w+|\$\{\w+\}/;

/**
 * The tests that each file runs, as Vitest itself finds them, without running the files. Tests that are skipped, and
 * titles that a file only mentions, are not among them.
 */
export async function parseTests(files: readonly string[]): Promise<Map<string, TitlePath[]>> {
  const vitest = await createVitest("test", { watch: false, reporters: [] });
  try {
    const project = vitest.projects[0]!;
    const modules = await vitest.parseSpecifications(
      files.map((file) => project.createSpecification(resolve(file))),
    );
    return new Map(
      modules.map((module, i) => {
        const tests = [...module.children.allTests()];
        return [files[i]!, tests.filter(({ options }) => options.mode === "run").map(pathOf)];
      }),
    );
  } finally {
    await vitest.close();
  }
}

function pathOf(test: TestCase): TitlePath {
  const titles = [test.name];
  for (let at = test.parent; at.type === "suite"; at = at.parent) titles.unshift(at.name);
  return titles;
}

export const hostileFile = "docs/hostile.md";

/** A test or suite whose title has a number, as in `hostile 11: …`. */
interface HostileCase {
  number: number;
  title: string;
  file: string;
  /** Titles inside the suite; none if the case is one test. */
  tests: string[];
}

interface HostileTests {
  /** By number, then in the order of their files. */
  cases: HostileCase[];
  /** Tests without a number in files whose path says that they are about hostile code. */
  others: { file: string; tests: string[] }[];
}

/** Reads the sources of all tests. */
export async function findHostileTests(): Promise<HostileTests> {
  const files = globSync("{api,agent,shared,scripts}/**/*.test.ts").toSorted();
  const mentioning = files.filter((file) => readFileSync(file, "utf8").includes("hostile "));
  const cases = new Map<string, HostileCase>();
  const others = new Map<string, string[]>();
  for (const [file, tests] of await parseTests(mentioning)) {
    for (const path of tests) {
      const at = path.findIndex((title) => numbered.test(title));
      const [, number, title = ""] = numbered.exec(path[at] ?? "") ?? [];
      if (number !== undefined) {
        const key = `${file}: ${path[at]}`;
        const found = cases.get(key) ?? { number: Number(number), title, file, tests: [] };
        cases.set(key, { ...found, tests: [...found.tests, ...path.slice(at + 1)] });
      } else if (file.includes("hostile")) {
        others.set(file, [...(others.get(file) ?? []), path.at(-1)!]);
      }
    }
  }
  return {
    cases: [...cases.values()].toSorted((a, b) => a.number - b.number),
    others: [...others].map(([file, tests]) => ({ file, tests })),
  };
}

const numbered = /^hostile (\d+): (.*)$/;

/** Text of docs/hostile.md: the tables come from the titles of tests. */
export function hostileText({ cases, others }: HostileTests): string {
  return fillSections(readFileSync(hostileFile, "utf8"), {
    cases: table(
      "| number | case | its tests | file |\n|---|---|---|---|\n",
      cases.map(({ number, title, tests, file }) => [
        number,
        plain(title),
        list(tests),
        code(file),
      ]),
    ),
    others: table(
      "| file | its tests |\n|---|---|\n",
      others
        .map(({ file, tests }) => [code(file), list(tests)])
        .filter(([, tests]) => tests !== ""),
    ),
  });
}

function table(head: string, rows: (string | number)[][]): string {
  return head + rows.map((cells) => `| ${cells.join(" | ")} |\n`).join("");
}

const code = (text: string): string => `\`${text}\``;

/** Titles that are a parameter alone say nothing here. */
function list(titles: string[]): string {
  return titles
    .map(plain)
    .filter((title) => /\w/.test(title))
    .join(" · ");
}

/** A title as Markdown shows it, with "…" for its parameters. */
function plain(title: string): string {
  return title
    .replaceAll(new RegExp(PLACEHOLDER, "g"), "…")
    .replaceAll(/[\\`*_<|]/g, String.raw`\$&`);
}
