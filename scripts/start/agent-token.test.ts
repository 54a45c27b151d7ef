import { readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { beforeEach, expect, test } from "vitest";
import { agentName, agentToken } from "./agent-token.ts";
import { tempFolder } from "../../shared/testing/temp-folder.ts";

let dir: string;

beforeEach(() => {
  dir = tempFolder();
});

test("makes 32 random bytes once and keeps them private", () => {
  const dataDir = join(dir, "deep/data");
  const token = agentToken(dataDir);
  expect(token).toMatch(/^[0-9a-f]{64}$/);
  expect(agentToken(dataDir)).toBe(token);
  expect(statSync(dataDir).mode & 0o777).toBe(0o700);
  expect(statSync(join(dataDir, "agent-token")).mode & 0o777).toBe(0o600);
  expect(readdirSync(dataDir)).toEqual(["agent-token"]);
});

test("two folders have two tokens, and two names for their agents", () => {
  const [a, b] = [agentToken(join(dir, "a")), agentToken(join(dir, "b"))];
  expect(a).not.toBe(b);
  expect(agentName(a)).not.toBe(agentName(b));
  expect(agentName(a)).toBe(agentName(a));
});

test("reports that no folder can be made", () => {
  expect(() => agentToken("/proc/airlock/data")).toThrow(
    /^cannot make \/proc\/airlock: \/proc accepts no folders$/,
  );
});
