import { resolve } from "node:path";
import { createVitest, type TestCase } from "vitest/node";

/** The title of a test after those of the suites that it is in. A title with parameters is as it stands in the file. */
export type TitlePath = readonly string[];

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
