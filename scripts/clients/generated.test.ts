import { readFileSync } from "node:fs";
import { parse } from "smol-toml";
import { expect, test } from "vitest";
import { version } from "../../api/version.ts";
import { clientDocument } from "./document.ts";
import { pythonFile, pythonProblemsFile, pythonProblemsText, pythonText } from "./python.ts";
import { typescriptFile, typescriptText } from "./typescript.ts";

const document = await clientDocument();

test("the generated part of the TypeScript client is up to date (scripts/run writes it if its sources are newer)", async () => {
  expect(readFileSync(typescriptFile, "utf8")).toBe(await typescriptText(document));
});

test("the types and errors of the Python client are up to date (npm run docs writes them)", () => {
  expect(readFileSync(pythonProblemsFile, "utf8")).toBe(pythonProblemsText(document));
  expect(readFileSync(pythonFile, "utf8")).toBe(pythonText(document));
});

test("the clients have the version of the service", () => {
  for (const file of ["clients/typescript/package.json", "clients/cli/package.json"]) {
    expect(JSON.parse(readFileSync(file, "utf8"))).toMatchObject({ version });
  }
  const pyproject = readFileSync("clients/python/pyproject.toml", "utf8");
  expect(parse(pyproject)).toMatchObject({ project: { version } });
});
