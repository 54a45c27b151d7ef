import { expect, test } from "vitest";
import { parseSize, sizeText } from "./sizes.ts";

test.each([
  ["0", 0, "0 B"],
  ["1000", 1000, "1 KB"],
  ["1001 b", 1001, "1001 B"],
  ["10g", 10 * 1024 ** 3, "10 GiB"],
  ["10 GiB", 10 * 1024 ** 3, "10 GiB"],
  ["1.5 MiB", 1536 * 1024, "1536 KiB"],
  ["500 MB", 500_000_000, "500 MB"],
  ["2 tb", 2e12, "2 TB"],
])("%j is %d bytes, and is shown exactly", (text, bytes, shown) => {
  expect(parseSize(text)).toBe(bytes);
  expect(parseSize(sizeText(bytes))).toBe(bytes);
  expect(sizeText(bytes)).toBe(shown);
});

test.each(["", "x", "-1", "10 gigs", "1e9", "1 GiBB"])("%j is no size", (text) => {
  expect(parseSize(text)).toBeUndefined();
});
