import { expect, test } from "vitest";
import type { CallFile } from "../sandbox/job.ts";
import { createBroughtFiles } from "./brought-files.ts";

const file = (name: string, sizeBytes: number, to: CallFile["to"] = "input"): CallFile => ({
  name,
  sizeBytes,
  to,
  path: "",
  sha256: "",
});

test("files in /input stay and count for each later call; those to work on count once", () => {
  const { admit } = createBroughtFiles();
  admit([file("a", 6), file("w", 4, "work")], 10);
  admit([file("w", 4, "work")], 10);
  expect(() => admit([file("w", 5, "work")], 10)).toThrow("a quarter of its memory limit");
  admit([file("a", 1), file("b", 9)], 10);
  expect(() => admit([file("c", 1)], 10)).toThrow("a quarter of its memory limit");
});

test("a call that is refused has brought nothing", () => {
  const { admit } = createBroughtFiles();
  admit([file("a", 6)], 10);
  expect(() => admit([file("a", 1), file("b/c", 10)], 10)).toThrow("a quarter");
  admit([file("b", 4)], 10);
  expect(() => admit([file("d", 1)], 10)).toThrow("a quarter");
});

test("a name is no folder of another one", () => {
  const { admit } = createBroughtFiles();
  admit([file("a/b", 1)], 10);
  expect(() => admit([file("a", 1)], 10)).toThrow('has "a/b" in /input');
  expect(() => admit([file("a/b/c", 1)], 10)).toThrow('has "a/b" in /input');
});

test("files in /input are bounded in number: empty ones use memory, too", () => {
  const { admit } = createBroughtFiles(2);
  admit([file("a", 0), file("b", 0)], 10);
  admit([file("a", 0), file("c", 0, "work")], 10);
  expect(() => admit([file("c", 0)], 10)).toThrow("more than 2 files");
});
