import { existsSync, globSync, readFileSync } from "node:fs";
import { dirname } from "node:path";
import { expect, test } from "vitest";

const page = readFileSync("docs/architecture.md", "utf8");
const named = [...page.matchAll(/`((?:api|agent|shared|scripts|clients|packaging)\/[^`*]*)`/g)].map(
  ([, path = ""]) => path,
);

test("every path on docs/architecture.md exists", () => {
  expect(named.length).toBeGreaterThan(50);
  expect(named.filter((path) => !existsSync(path))).toEqual([]);
});

/** What builds and Python leave among the sources. */
const made = /\/(dist|__pycache__|[^/]*\.egg-info)\/|^clients\/python\/build\//;

test("every folder of the sources is on the map", () => {
  const files = globSync("{api,agent,shared,scripts,clients,packaging}/**/*.*");
  const sources = files.filter((file) => !made.test(file));
  const folders = [...new Set(sources.map((file) => `${dirname(file)}/`))].toSorted();
  expect(folders.filter((folder) => !named.includes(folder))).toEqual([]);
});

test("the path of a job has 15 steps", () => {
  const [, path = ""] = /^## The life of a job\n([^]*?)\n## /m.exec(page) ?? [];
  expect(path.match(/^\d+\. /gm)).toHaveLength(15);
});
