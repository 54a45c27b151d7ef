import { readFileSync } from "node:fs";
import { expect, onTestFinished, test } from "vitest";
import { createApp } from "../../api/app.ts";
import { contractGroups } from "../../api/testing/contract-table.ts";
import { endpointsOf, type OpenApiDocument } from "../../api/testing/openapi-document.ts";
import { openTempStore } from "../../api/testing/temp-store.ts";
import { testDeps } from "../../api/testing/test-deps.ts";
import { contractFile, contractSections, contractText } from "./contract.ts";
import { missingTests, namedTests } from "./named-tests.ts";

const page = readFileSync(contractFile, "utf8");

async function readEndpoints(): Promise<string[]> {
  const store = await openTempStore();
  onTestFinished(() => store.close());
  const app = createApp(testDeps(store.db, store.folder, Date.now, {}));
  const document = (await (await app.request("/openapi.json")).json()) as OpenApiDocument;
  return endpointsOf(document).map(({ method, path }) => `${method} ${path}`);
}

test("docs/contract.md is up to date with statements and rows (npm run docs writes it)", () => {
  expect(page).toBe(contractText());
});

test("every section of the contract exists, with its statements numbered without a gap", () => {
  expect(Object.keys(contractSections).map(Number)).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
  for (const { statements } of Object.values(contractSections)) {
    const numbers = Object.keys(statements).map(Number);
    expect(numbers).toEqual(numbers.map((_, i) => i + 1));
  }
});

test("every test of a statement is there, and runs", async () => {
  const named = namedTests(page);
  const tests = Object.values(contractSections).flatMap(({ statements }) =>
    Object.values(statements).flatMap(({ tests }) => tests),
  );
  expect(named).toHaveLength(tests.length);
  expect(await missingTests(named)).toEqual([]);
});

test("every endpoint is on the page", async () => {
  const missing = (await readEndpoints()).filter((endpoint) => !page.includes(`\`${endpoint}\``));
  expect(missing).toEqual([]);
});

test("a group of rows names endpoints that are there, and the file that has its rows", async () => {
  const endpoints = await readEndpoints();
  expect(endpoints).toEqual(
    expect.arrayContaining(contractGroups.flatMap(({ endpoints }) => endpoints ?? [])),
  );
  const rows = contractGroups.flatMap(({ file, rows }) =>
    rows.map(({ rule }) => ({ file: `api/testing/contract/${file}`, title: rule })),
  );
  expect(await missingTests(rows)).toEqual([]);
});
