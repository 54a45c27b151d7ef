import { existsSync, globSync, readFileSync } from "node:fs";
import { dirname, join, normalize } from "node:path";
import { expect, test } from "vitest";
import { endpointsOf } from "../../api/testing/openapi-document.ts";
import { readDocument } from "../../api/testing/read-document.ts";
import { collectTitles, missingTests, namedTests } from "./named-tests.ts";

const pages = globSync(["*.md", "docs/**/*.md"]).map((page) => ({
  page,
  text: readFileSync(page, "utf8"),
}));
const textOf = (page: string): string => pages.find((one) => one.page === page)!.text;
/** All but the pages that have a form of their own. */
const others = pages.filter(({ page }) => !["README.md", "CHANGELOG.md"].includes(page));

/** Rows of tables whose last column names the tests that show what a row promises. */
const promises = pages.flatMap(({ page, text }) =>
  [...text.matchAll(/^\| .* \| (?:tests|shown by) \|\n\|[-|]+\|\n((?:\|.*\|\n)+)/gm)].map(
    ([, rows = ""]) => ({ page, rows: rows.trimEnd().split("\n") }),
  ),
);

test("each promise names a test", () => {
  const promising = ["SECURITY.md", "docs/contract.md", "docs/faults.md"];
  expect(new Set(promises.map(({ page }) => page))).toEqual(new Set(promising));
  const rows = promises.flatMap((table) => table.rows);
  expect(rows.filter((row) => namedTests(`${row}\n`).length === 0)).toEqual([]);
});

test("promises are numbered without a gap", () => {
  for (const { page, rows } of promises.filter((table) => table.page !== "SECURITY.md")) {
    const numbers = rows.map((row) => /^\| (?:\d+\.)?(\d+) \|/.exec(row)?.[1]);
    expect({ page, numbers }).toEqual({ page, numbers: rows.map((_, i) => String(i + 1)) });
  }
});

test("every named test exists and runs", async () => {
  const named = pages.flatMap(({ text }) => namedTests(text));
  expect(named.length).toBeGreaterThan(400);
  expect(await missingTests(named)).toEqual([]);
});

test("cases of hostile code are numbered without a gap, except 36 to 44, which were cases of zygotes", async () => {
  const files = globSync("{api,agent,shared,scripts}/**/*.test.ts");
  const mentioning = files.filter((file) => readFileSync(file, "utf8").includes("hostile "));
  const titles = [...(await collectTitles(mentioning)).values()].flat();
  const numbers = new Set(titles.map((title) => Number(/^hostile (\d+): /.exec(title)?.[1] ?? 0)));
  const all = Array.from({ length: Math.max(...numbers) + 1 }, (_, n) => n);
  const missing = all.filter((n) => !numbers.has(n));
  expect(missing).toEqual([36, 37, 38, 39, 40, 41, 42, 43, 44]);
});

const pathsOf = (text: string): string[] =>
  [...text.matchAll(/`((?:api|agent|shared|scripts|clients|packaging)\/[^`*…\s]*)`/g)].map(
    ([, path = ""]) => path,
  );

test.each(pages.filter(({ page }) => page !== "CHANGELOG.md"))(
  "every path on $page exists",
  ({ text }) => {
    expect(pathsOf(text).filter((path) => !existsSync(path))).toEqual([]);
  },
);

/** What builds and Python leave among the sources. */
const made = /\/(dist|__pycache__|[^/]*\.egg-info)\/|^clients\/python\/build\//;

test("every folder of the sources is on the map of docs/architecture.md", () => {
  const files = globSync("{api,agent,shared,scripts,clients,packaging}/**/*.*");
  const folders = new Set(files.filter((file) => !made.test(file)).map((file) => dirname(file)));
  const mapped = new Set(pathsOf(textOf("docs/architecture.md")));
  expect([...folders].filter((folder) => !mapped.has(`${folder}/`))).toEqual([]);
});

/** A heading as its address: the rules of GitHub. */
function anchorOf(heading: string): string {
  return heading
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N} _-]/gu, "")
    .replaceAll(" ", "-");
}

function anchorsOf(page: string): string[] {
  const text = readFileSync(page, "utf8").replaceAll(/^```[^]*?^```/gm, "");
  return [...text.matchAll(/^#+ (.+)$/gm)].map(([, heading = ""]) => anchorOf(heading));
}

test.each(pages)("every link of $page leads somewhere", ({ page, text }) => {
  const links = [...text.matchAll(/\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)/g)];
  const broken = links.filter(([, path = "", anchor]) => {
    const target = path === "" ? page : normalize(join(dirname(page), path));
    if (!existsSync(target)) return true;
    return anchor !== undefined && !anchorsOf(target).includes(anchor);
  });
  expect(broken.map(([link]) => link)).toEqual([]);
});

test("the README leads to every page, in at most 150 lines", () => {
  const readme = textOf("README.md");
  const missing = pages.filter(({ page }) => page !== "README.md" && !readme.includes(`(${page})`));
  expect(missing.map(({ page }) => page)).toEqual([]);
  expect(readme.split("\n").length).toBeLessThanOrEqual(151);
});

test("every page except README and CHANGELOG begins with whom it is for", () => {
  expect(others.filter(({ text }) => !/^# .+\n\nFor /.test(text)).map(({ page }) => page)).toEqual(
    [],
  );
});

test("the table of docs/guides/jobs.md and the OpenAPI document have the same endpoints", async () => {
  const described = endpointsOf(await readDocument()).map(
    ({ method, path }) => `${method} ${anyName(path)}`,
  );
  const [, table = ""] = textOf("docs/guides/jobs.md").split("\n## Endpoints\n");
  const listed = [...table.matchAll(/^\| (`.*`) \|/gm)].flatMap(([, cell = ""]) =>
    endpointsIn(cell),
  );
  expect(listed.toSorted()).toEqual([...described, "POST /mcp"].toSorted());
});

const anyName = (path: string): string => path.replaceAll(/\{\w+\}/g, "{}");

/** A path has the methods that are named since the path before it; if none is, those of that path. */
function endpointsIn(cell: string): string[] {
  let methods: string[] = [];
  let isNew = true;
  return [...cell.matchAll(/`([A-Z]+)? ?(\/\S*)?`/g)].flatMap(([, method, path]) => {
    if (method !== undefined) methods = isNew ? [method] : [...methods, method];
    isNew = path !== undefined;
    return path === undefined ? [] : methods.map((one) => `${one} ${anyName(path)}`);
  });
}

/** Pages that the sources name, and the statements of the contract that they name with them. */
const citations = globSync([
  "{api,agent,shared,scripts,packaging}/**/*.{ts,py,sql,service}",
  "{Dockerfile,compose.yaml,wrangler.toml,.ci/run}",
]).flatMap((file) => {
  const cited = /([\w./-]*\w\.md)\b((?:(?:,| and| to)? \d+\.\d+)*)/g;
  return [...readFileSync(file, "utf8").matchAll(cited)].map(([, page = "", numbers = ""]) => ({
    file,
    page: page.replace(/^.*\/opt\/airlock\//, ""),
    statements: numbers.match(/\d+\.\d+/g) ?? [],
  }));
});

test("sources cite only pages of the repository, and statements of docs/contract.md", () => {
  expect(citations.flatMap(({ statements }) => statements).length).toBeGreaterThan(10);
  const contract = textOf("docs/contract.md");
  const unknown = citations.filter(
    ({ page, statements }) =>
      !existsSync(page) || statements.some((n) => !contract.includes(`\n| ${n} |`)),
  );
  expect(unknown).toEqual([]);
});
