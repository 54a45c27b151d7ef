import { existsSync, globSync, readFileSync } from "node:fs";
import { expect, test } from "vitest";

const sources = [
  ...globSync("{api,agent,shared,scripts,packaging}/**/*.{ts,py,sql,service}"),
  ...globSync("{Dockerfile,compose.yaml,wrangler.toml,.ci/run}"),
];

/** Pages that a file names, and the statements of the contract that it names with them. */
function citationsOf(file: string): { file: string; page: string; statements: string[] }[] {
  const text = readFileSync(file, "utf8");
  const cited = /([\w./-]*\w\.md)\b((?:(?:,| and| to)? \d+\.\d+)*)/g;
  return [...text.matchAll(cited)].map(([, page = "", numbers = ""]) => ({
    file,
    page: page.replace(/^.*\/opt\/airlock\//, ""),
    statements: numbers.match(/\d+\.\d+/g) ?? [],
  }));
}

const citations = sources.flatMap(citationsOf);

test("sources cite only pages of the repository", () => {
  const unknown = citations.filter(({ page }) => !existsSync(page));
  expect(unknown.map(({ file, page }) => `${file}: ${page}`)).toEqual([]);
});

test("a cited statement of docs/contract.md exists", () => {
  const contract = readFileSync("docs/contract.md", "utf8");
  const cited = citations.filter(({ page }) => page === "docs/contract.md");
  expect(cited.length).toBeGreaterThan(10);
  const unknown = cited.flatMap(({ file, statements }) =>
    statements.filter((n) => !contract.includes(`\n| ${n} |`)).map((n) => `${file}: ${n}`),
  );
  expect(unknown).toEqual([]);
});
