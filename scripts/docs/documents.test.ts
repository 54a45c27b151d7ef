import { existsSync, globSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join, normalize, resolve } from "node:path";
import { parse } from "smol-toml";
import { describe, expect, test } from "vitest";
import { contractTable } from "../../api/testing/contract-table.ts";
import type { Row } from "../../api/testing/contract/api.ts";
import { endpointsOf } from "../../api/testing/openapi-document.ts";
import { readDocument } from "../../api/testing/temp-store.ts";
import { Config, loadConfig } from "../../shared/config/config.ts";
import { tempFolder } from "../../shared/testing/test-file.ts";
import { ExecutionErrorType } from "../../shared/wire/errors.ts";
import { BatchRequest, ExecuteRequest } from "../../shared/wire/submissions.ts";
import {
  findHostileTests,
  hostileFile,
  hostileText,
  parseTests,
  PLACEHOLDER,
} from "./test-titles.ts";

describe("documents", () => {
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

  const hostileTests = findHostileTests();

  /** The numbers of cases that a text names, as in "hostile 45 to 49, 54". */
  function namedCases(text: string): number[] {
    const named = text.matchAll(/hostile (\d+(?:(?:, | to | and )\d+)*)/g);
    return [...named].flatMap(([, list = ""]) => list.match(/\d+/g)!.map(Number));
  }

  test("each promise names a test", () => {
    const promising = ["SECURITY.md", "docs/contract.md", "docs/faults.md"];
    expect(new Set(promises.map(({ page }) => page))).toEqual(new Set(promising));
    const rows = promises.flatMap((table) => table.rows);
    const untested = rows.filter(
      (row) => namedTests(`${row}\n`).length + namedCases(row).length === 0,
    );
    expect(untested).toEqual([]);
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
    const numbers = new Set((await hostileTests).cases.map(({ number }) => number));
    const all = Array.from({ length: Math.max(...numbers) }, (_, n) => n + 1);
    const missing = all.filter((n) => !numbers.has(n));
    expect(missing).toEqual([36, 37, 38, 39, 40, 41, 42, 43, 44]);
  });

  test("every case of hostile code that SECURITY.md names by number exists", async () => {
    const numbers = new Set((await hostileTests).cases.map(({ number }) => number));
    const named = namedCases(textOf("SECURITY.md"));
    expect(named.length).toBeGreaterThan(20);
    expect(named.filter((number) => !numbers.has(number))).toEqual([]);
  });

  test("docs/hostile.md is up to date with the tests (npm run docs writes it)", async () => {
    expect(textOf(hostileFile)).toBe(hostileText(await hostileTests));
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
    const missing = pages.filter(
      ({ page }) => page !== "README.md" && !readme.includes(`(${page})`),
    );
    expect(missing.map(({ page }) => page)).toEqual([]);
    expect(readme.split("\n").length).toBeLessThanOrEqual(151);
  });

  test("every page except README and CHANGELOG begins with whom it is for", () => {
    expect(
      others.filter(({ text }) => !/^# .+\n\nFor /.test(text)).map(({ page }) => page),
    ).toEqual([]);
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
    "{Dockerfile,compose*.yaml,wrangler.toml,.ci/run}",
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
});

/** A test that a page names as `file`: title. */
interface NamedTest {
  file: string;
  title: string;
}

/** The tests that a page's tables name, as `` `file`: title · `file`: title ``. */
function namedTests(page: string): NamedTest[] {
  return [...page.matchAll(/`([\w/.-]+\.ts)`: (.+?)(?= · | \|\n)/g)].map(
    ([, file = "", title = ""]) => ({ file, title }),
  );
}

/**
 * Those of the named tests that their file does not run. "…" in a title stands for anything; a value of a table's
 * row stands where the file's title has its placeholder.
 */
async function missingTests(named: readonly NamedTest[]): Promise<NamedTest[]> {
  const titles = await collectTitles([...new Set(named.map(({ file }) => file))]);
  return named.filter(({ file, title }) => {
    const source = readFileSync(file, "utf8");
    return !titles.get(file)?.some((found) => isTitle(found, title, source));
  });
}

/** The titles of the tests that each file runs, and of their suites: those skipped, or mentioned elsewhere, are not among them. */
async function collectTitles(files: readonly string[]): Promise<Map<string, string[]>> {
  const parsed = await parseTests(files.filter((file) => !isContract(file)));
  const titles = [...parsed].map(([file, tests]): [string, string[]] => [
    file,
    [...new Set(tests.flatMap((path) => path.toReversed()))],
  ]);
  const rows = files
    .filter(isContract)
    .map(async (file) => [file, await ruleTitles(file)] as const);
  return new Map([...titles, ...(await Promise.all(rows))]);
}

const isContract = (file: string): boolean => file.startsWith("api/testing/contract/");

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

/** Matches this text with anything in the places of `gap`, which it captures. */
function patternOf(text: string, gap: RegExp): RegExp {
  const parts = text.split(gap).map((part) => part.replaceAll(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  return new RegExp(`^${parts.join("(.*)")}$`);
}

function quotes(source: string, value: string): boolean {
  return [`"${value}"`, `\`${value}\``, `'${value}'`].some((quoted) => source.includes(quoted));
}

const source = `
import { describe, it, test } from "vitest";
const mentioned = "only mentioned";
// test("in a comment", () => {});
test("runs", () => {});
it.each([["a value"]])("runs with %s", () => {});
describe("a suite", () => { test("runs in a suite", { timeout: 1 }, () => {}); });
test.skip("is skipped", () => {});
it.todo("is to do");
describe.skip("a skipped suite", () => { test("is skipped with its suite", () => {}); });
`;

function sourceFile(): string {
  const folder = tempFolder();
  const file = join(folder, "a.test.ts");
  writeFileSync(file, source);
  return file;
}

test("titles are those of tests that run, not of skipped tests or other strings", async () => {
  const file = sourceFile();
  expect((await collectTitles([file])).get(file)).toEqual([
    "runs",
    "runs with %s",
    "runs in a suite",
    "a suite",
  ]);
});

test("a row of the contract counts where the contract's table has it", async () => {
  const file = "api/testing/contract/monitoring.ts";
  const titles = (await collectTitles([file])).get(file) ?? [];
  expect(titles.length).toBeGreaterThan(0);
  expect(await missingTests([{ file, title: titles[0]! }])).toEqual([]);
  expect(await missingTests([{ file, title: "no such rule" }])).toHaveLength(1);
});

test("a title must be complete, except for its …", async () => {
  const file = sourceFile();
  const named = ["runs", "runs …", "run", "is skipped"].map((title) => ({ file, title }));
  expect((await missingTests(named)).map(({ title }) => title)).toEqual(["run", "is skipped"]);
});

test("a row of a table of tests is named with its values, which are in the file", async () => {
  const file = sourceFile();
  const named = ["a value", "…", "another"].map((with_) => ({ file, title: `runs with ${with_}` }));
  expect(await missingTests(named)).toEqual([{ file, title: "runs with another" }]);
});

test("a page's table names tests as `file`: title", () => {
  const page = "| a | `x/a.test.ts`: one · `x/b.ts`: two |\n";
  expect(namedTests(page)).toEqual([
    { file: "x/a.test.ts", title: "one" },
    { file: "x/b.ts", title: "two" },
  ]);
});

describe("examples", () => {
  const pages = globSync(["*.md", "docs/**/*.md"]).filter((page) => page !== "CHANGELOG.md");
  const texts = pages.map((page) => ({ page, text: readFileSync(page, "utf8") }));

  function blocksOf(language: string): { page: string; block: string }[] {
    const fence = new RegExp(`^( *)\`\`\`${language}\n([^]*?)^\\1\`\`\``, "gm");
    return texts.flatMap(({ page, text }) =>
      [...text.matchAll(fence)].map(([, , block = ""]) => ({ page, block })),
    );
  }

  test.each(blocksOf("toml"))("$page: an example is accepted as airlock.toml", ({ block }) => {
    expect(() => loadConfig(parse(block), {})).not.toThrow();
  });

  const requests = blocksOf("sh").flatMap(({ page, block }) =>
    [...block.matchAll(/\/execute(\/batch)?\b[^]*?-d '([^']*)'/g)].map(([, batch, body = ""]) => ({
      page,
      schema: batch === undefined ? ExecuteRequest : BatchRequest,
      body,
    })),
  );

  test.each(requests)("$page: the body $body is a request", ({ schema, body }) => {
    expect(schema.safeParse(JSON.parse(body)).error).toBeUndefined();
  });

  test("there are examples of both", () => {
    expect(blocksOf("toml").length).toBeGreaterThan(5);
    expect(requests.length).toBeGreaterThan(4);
  });

  describe.each(texts)("$page", ({ text }) => {
    test("every npm script that it names exists", () => {
      const { scripts } = JSON.parse(readFileSync("package.json", "utf8")) as {
        scripts: Record<string, string>;
      };
      const named = [...text.matchAll(/npm run ([\w:-]+)/g)].map(([, name = ""]) => name);
      expect(named.filter((name) => !(name in scripts))).toEqual([]);
    });

    test("every variable that it names is a key's, compose.yaml's or a client's", () => {
      const own =
        readFileSync("compose.yaml", "utf8") +
        readFileSync("compose.build.yaml", "utf8") +
        readFileSync("clients/cli/connection.ts", "utf8") +
        readFileSync("shared/process/files.node.ts", "utf8");
      const named = [...text.matchAll(/\bAIRLOCK_[A-Z_]+\b(?!_)/g)].map(([name]) => name);
      const keys = Object.keys(Config.shape).map((key) => `AIRLOCK_${key.toUpperCase()}`);
      expect(named.filter((name) => !keys.includes(name) && !own.includes(name))).toEqual([]);
    });
  });
});

const page = readFileSync("docs/troubleshooting.md", "utf8");
const symptoms = [...page.matchAll(/^\| (.+?) \|/gm)].map(([, symptom = ""]) => symptom);
const quoted = symptoms.flatMap((symptom) => [...symptom.matchAll(/`([^`]+)`/g)].map((m) => m[1]!));

/** What Python, npm and bash say themselves. */
const notOurs = [
  "No space left on device",
  "Read-only file system",
  "syntax error: unexpected end of file",
  "invalid option",
  "numeric argument required",
];

test("every message on docs/troubleshooting.md is one of the service's", () => {
  const files = globSync(["{api,agent,shared,scripts}/**/*.ts", "scripts/run"]);
  const sources = files
    .filter((file) => !/\.test\.ts$|\/testing\//.test(file))
    .map((file) => readFileSync(file, "utf8").replaceAll('\\"', '"'));
  const text = sources.join("\n").replaceAll(/\$\{(?:[^{}]|\{[^{}]*\})*\}|\{\w+\}/g, "…");
  const messages = quoted.filter((words) => words.includes(" ") && !notOurs.includes(words));
  expect(messages.length).toBeGreaterThan(40);
  const unknown = messages.filter((message) =>
    message.split("…").some((piece) => !text.includes(piece.trim())),
  );
  expect(unknown).toEqual([]);
});

test("every error type on docs/troubleshooting.md exists", () => {
  const types = quoted.filter((word) => /^[a-z]+(_[a-z]+)*$/.test(word));
  expect(types).toContain("import_error");
  expect(types.filter((type) => !ExecutionErrorType.safeParse(type).success)).toEqual([]);
});
