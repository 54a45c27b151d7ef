import { readFileSync } from "node:fs";
import { expect, test } from "vitest";

type Package = { version: string; license: string; files?: string[] };
const read = (file: string): string => readFileSync(file, "utf8");
const packageOf = (folder: string) => JSON.parse(read(`${folder}package.json`)) as Package;

const { version } = packageOf("");

test.each(["clients/typescript/", "clients/cli/"])(
  "%s has the service's version, its licence and its changelog",
  (folder) => {
    expect(packageOf(folder)).toMatchObject({ version, license: "MIT" });
    expect(packageOf(folder).files).toContain("CHANGELOG.md");
    expect(read(`${folder}CHANGELOG.md`)).toContain(`## ${version}`);
    expect(read(`${folder}LICENSE`)).toBe(read("LICENSE"));
    expect(read(`${folder}README.md`)).toContain("npm pack --ignore-scripts=false");
  },
);

test("clients/python has the service's version, its licence and its changelog", () => {
  const project = read("clients/python/pyproject.toml");
  expect(project).toContain(`version = "${version}"`);
  expect(project).toContain('license = "MIT"\nlicense-files = ["LICENSE"]');
  expect(read("clients/python/CHANGELOG.md")).toContain(`## ${version}`);
  expect(read("clients/python/LICENSE")).toBe(read("LICENSE"));
  expect(read("clients/python/README.md")).toContain("pip install");
});
