import { expect, test } from "vitest";
import { isArtifactName } from "./artifact-name.ts";

test.each([
  "a",
  "plot.png",
  "sub/dir/x.csv",
  ".hidden",
  "a b",
  "größe",
  "日本",
  "%2e%2e",
  "..a",
  "~",
])("%o is a name", (name) => expect(isArtifactName(name)).toBe(true));

test.each([
  "",
  "/a",
  "a/",
  "a//b",
  "..",
  "a/../b",
  "./a",
  "a\\b",
  "a\nb",
  "a\r\nX-Header: 1",
  "nul\0",
  "\u001b[31m",
  "\u007f",
  "\u0085",
  "\u202egnp.exe",
  "\u2028",
  "\u2066",
  "\ud800",
  "_code.py",
  "_input.json",
  "x".repeat(1025),
  "ü".repeat(513),
])("%o is none", (name) => expect(isArtifactName(name)).toBe(false));
