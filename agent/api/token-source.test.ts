import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, it } from "vitest";
import { writeCredentials } from "./credentials.ts";
import { joinedToken } from "./token-source.ts";

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "airlock-test-"));
});
afterEach(() => rm(folder, { recursive: true }));

const [old, next] = [`ala_${"0".repeat(64)}`, `ala_${"1".repeat(64)}`] as const;
const write = (token: string): void =>
  writeCredentials(folder, { api_url: "http://127.0.0.1:1", name: "host", token }, "joined");

it("a refused token is replaced by the one that rotate has written", () => {
  write(old);
  const token = joinedToken(folder, old);
  expect(token.isReplaced(old)).toBe(false);
  write(next);
  expect(token.current()).toBe(old);
  expect(token.isReplaced(old)).toBe(true);
  expect(token.current()).toBe(next);
});

it("a token whose file is gone stays the one in use", () => {
  const token = joinedToken(folder, old);
  expect(token.isReplaced(old)).toBe(false);
  expect(token.current()).toBe(old);
});
