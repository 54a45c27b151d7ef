import { expect, test } from "vitest";
import { createTokens } from "./token.ts";

const secret = (fill: number) => () => Promise.resolve(new Uint8Array(32).fill(fill));
const tokens = createTokens(secret(1));
const key = "api-key-0-0123456789abcd";

test("a token brings the key back, for its session alone", async () => {
  const token = await tokens.seal(key, "session");
  expect(token).toMatch(/^[\w-]+$/);
  expect(token).not.toContain(key);
  expect(await tokens.open(token, "session")).toBe(key);
  expect(await tokens.open(token, "other")).toBeUndefined();
  expect(await createTokens(secret(1)).open(token, "session")).toBe(key);
  expect(await createTokens(secret(2)).open(token, "session")).toBeUndefined();
});

test("where the service has no keys, a token brings none", async () => {
  expect(await tokens.open(await tokens.seal(undefined, "session"), "session")).toBe("");
});

test.each(["", "no token", "é", "A".repeat(60)])("%j is no token", async (text) => {
  expect(await tokens.open(text, "session")).toBeUndefined();
});

test("a changed token is none", async () => {
  const token = await tokens.seal(key, "session");
  const changed = (token.startsWith("A") ? "B" : "A") + token.slice(1);
  expect(await tokens.open(changed, "session")).toBeUndefined();
});

test("after a secret that could not be read, the next call reads it again", async () => {
  let reads = 0;
  const late = createTokens(() => {
    reads += 1;
    return reads === 1 ? Promise.reject(new Error("no database")) : secret(1)();
  });
  await expect(late.seal(key, "session")).rejects.toThrow("no database");
  expect(await tokens.open(await late.seal(key, "session"), "session")).toBe(key);
});
