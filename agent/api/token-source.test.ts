import { beforeEach, expect, it } from "vitest";
import { tempFolder } from "../../shared/testing/temp-folder.ts";
import { writeCredentials } from "./credentials.ts";
import { joinedToken } from "./token-source.ts";

let folder: string;
beforeEach(async () => {
  folder = tempFolder();
});

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
