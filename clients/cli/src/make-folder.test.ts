import { statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeEach, expect, test } from "vitest";
import { makeFolder } from "./make-folder.ts";
import { tempFolder } from "../../../shared/testing/temp-folder.ts";

let folder: string;
beforeEach(() => {
  folder = tempFolder();
});

test("a folder is made with those above it, and stays if it exists", () => {
  const path = join(folder, "a/b/c");
  makeFolder(path, 0o700);
  makeFolder(path);
  expect(statSync(path).isDirectory()).toBe(true);
  expect(statSync(join(folder, "a")).mode & 0o777).toBe(0o700);
});

test("a folder that the system cannot make is an error that names it", () => {
  expect(() => makeFolder("/proc/none/deep")).toThrow("the folder /proc/none cannot be made");
  writeFileSync(join(folder, "file"), "");
  expect(() => makeFolder(join(folder, "file/deep"))).toThrow("file/deep cannot be made");
});
