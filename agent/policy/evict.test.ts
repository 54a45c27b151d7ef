import { expect, test } from "vitest";
import { ownerOf, toEvict } from "./evict.ts";

const kept = (owner: string, name: string, bytes = 10) => ({ owner, name, bytes });
const names = (gone: readonly { name: string }[]) => gone.map(({ name }) => name).join(" ");

test("room comes from the owner that holds most, its least recently used first", () => {
  const all = [kept("b", "b1"), ...["a1", "a2", "a3"].map((name) => kept("a", name))];
  expect(names(toEvict(all, 40))).toBe("");
  expect(names(toEvict(all, 39))).toBe("a1");
  expect(names(toEvict(all, 25))).toBe("a1 a2");
  // From here both hold the same.
  expect(names(toEvict(all, 15))).toBe("a1 a2 b1");
});

test("what is in use stays, and counts as held", () => {
  const all = [kept("b", "b1"), kept("a", "a1", 30), kept("a", "a2")];
  expect(names(toEvict(all, 35, ({ name }) => name !== "a1"))).toBe("a2 b1");
});

test("an owner's name on disk is short, the same in each process, and not the tenant's name", () => {
  expect(ownerOf("default")).toBe("37a8eec1");
});
