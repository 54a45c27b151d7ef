import { expect, test } from "vitest";
import { benchHelp, parseBenchOptions } from "./options.ts";

test("the default is all rows with all samples", () => {
  expect(parseBenchOptions([], ["a"])).toEqual({
    help: false,
    only: [],
    quick: false,
    markdown: false,
    writeDocs: false,
  });
  expect(parseBenchOptions(["--only", "a", "--only=b", "--quick"], ["a", "b"])).toMatchObject({
    only: ["a", "b"],
    quick: true,
  });
});

test("an unknown row is refused, with the names of known rows", () => {
  expect(() => parseBenchOptions(["--only", "c"], ["a", "b"])).toThrow(
    "--only c: no such row; there are a, b",
  );
});

test("results of a quick run do not get into the docs", () => {
  expect(() => parseBenchOptions(["--quick", "--write-docs"], [])).toThrow("too little");
});

test("an unknown option is refused, with a way to the list", () => {
  expect(() => parseBenchOptions(["--onyl"], [])).toThrow(/--onyl[^]*npm run bench -- --help/);
});

test("the help lists the rows", () => {
  expect(benchHelp([{ name: "warm", what: "hello" }])).toMatch(/warm +hello/);
});
