import { expect, test } from "vitest";
import { sha256 as everywhere } from "../hash.ts";
import { sha256 } from "./hash.node.ts";

const text = "Grüße, \u{1f40d}";

test.each([
  ["text", text],
  ["bytes", new TextEncoder().encode(text)],
  ["a view into a larger buffer", new TextEncoder().encode(`x${text}`).subarray(1)],
  ["text that is hashed on another thread", text.repeat(10_000)],
])("%s has the same hash in every runtime", async (_what, data) => {
  expect(await sha256(data)).toBe(await everywhere(data));
});

test("the hash is that of SHA-256", async () => {
  expect(await sha256("abc")).toBe(
    "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
  );
});
