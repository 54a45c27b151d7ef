import { mkdir, readdir, readFile, rm, stat, truncate, utimes, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { buffer } from "node:stream/consumers";
import { getLogger } from "@logtape/logtape";
import { beforeEach, expect, test } from "vitest";
import { tempFolder } from "../../shared/testing/temp-folder.ts";
import { openPackageCache, type PackageCache } from "./cache.ts";

let root: string;
let folder: string;
let cache: PackageCache;
const open = (maxBytes: number) =>
  openPackageCache(folder, maxBytes, getLogger(["airlock", "test"]));
beforeEach(async () => {
  root = tempFolder();
  folder = join(root, "a/b");
  cache = await open(10_000);
});

/** The owner of a set is its first letter. */
const key = (name: string): string => name.slice(0, 1).repeat(8) + name.slice(-1).repeat(56);
const file = (name: string): string => join(folder, `${key(name)}.packages`);

async function keep(name: string, ...pieces: string[]): Promise<void> {
  await using writer = await cache.begin(key(name));
  for (const piece of pieces) await writer.write(Buffer.from(piece));
  await writer.commit();
}
async function find(name: string): Promise<string | null> {
  await using found = await cache.find(key(name));
  return found && (await buffer(found.pieces())).toString();
}
const names = async () => (await readdir(folder)).map((name) => name.slice(0, 1)).sort();

test("a stored set is found by its key only", async () => {
  expect(await find("a")).toBeNull();
  await keep("a", "one ", "two");
  expect(await find("a")).toBe("one two");
  expect(await find("b")).toBeNull();
  expect((await stat(folder)).mode & 0o777).toBe(0o700);
  expect((await stat(file("a"))).mode & 0o777).toBe(0o600);
});

test("a set is replaced as a whole, and readers of the old one keep it", async () => {
  await keep("a", "old");
  await using found = await cache.find(key("a"));
  await keep("a", "new and longer");
  expect((await buffer(found!.pieces())).toString()).toBe("old");
  expect(await find("a")).toBe("new and longer");
});

test("a writer may start again, and so may a reader", async () => {
  {
    await using writer = await cache.begin(key("a"));
    await writer.write(Buffer.from("half of a long one"));
    await writer.restart();
    await writer.write(Buffer.from("whole"));
    await writer.commit();
  }
  await using found = await cache.find(key("a"));
  for await (const piece of found!.pieces()) expect(Buffer.from(piece).toString()).toBe("whole");
  expect((await buffer(found!.pieces())).toString()).toBe("whole");
});

test("a set that was not finished is neither kept nor left behind", async () => {
  {
    await using writer = await cache.begin(key("a"));
    await writer.write(Buffer.from("half"));
  }
  expect(await find("a")).toBeNull();
  expect(await readdir(folder)).toEqual([]);
});

test.each<[string, () => Promise<unknown>]>([
  ["cut off", async () => truncate(file("a"), (await stat(file("a"))).size - 1)],
  ["shorter than a digest", () => truncate(file("a"), 5)],
  ["empty", () => truncate(file("a"), 0)],
  [
    "changed by one bit",
    async () => {
      const bytes = await readFile(file("a"));
      bytes[1]! ^= 1;
      await writeFile(file("a"), bytes);
    },
  ],
])("a file that is %s counts as none, and is removed", async (_, damage) => {
  await keep("a", "precious");
  await damage();
  expect(await find("a")).toBeNull();
  expect(await readdir(folder)).toEqual([]);
  await keep("a", "again");
  expect(await find("a")).toBe("again");
});

test("the least recently used set is removed first when room is needed", async () => {
  const long = "x".repeat(4000);
  for (const letter of ["a", "b"]) {
    await keep(letter, long);
    await utimes(file(letter), 1000, letter === "a" ? 1000 : 2000);
  }
  expect(await find("a")).toBe(long);
  await keep("c", long);
  expect(await names()).toEqual(["a", "c"]);
});

test("room comes from the tenant that holds most, not from the one that used its set longest ago", async () => {
  const uses = { a1: 4000, b1: 3000, b2: 3000 };
  for (const [n, [name, bytes]] of Object.entries(uses).entries()) {
    await keep(name, "x".repeat(bytes));
    await utimes(file(name), n, n);
  }
  await keep("b3", "x".repeat(100));
  expect(await names()).toEqual(["a", "b", "b"]);
  expect(await find("b1")).toBeNull();
});

test("a set larger than the whole cache is not kept and displaces nothing", async () => {
  await keep("a", "small");
  await keep(
    "b",
    ..."x"
      .repeat(11)
      .split("")
      .map((x) => x.repeat(1000)),
  );
  expect(await names()).toEqual(["a"]);
});

test("what a dead writer left is removed after an hour; other files never are", async () => {
  for (const name of ["old.part", "new.part", "mine.txt"]) await writeFile(join(folder, name), "x");
  for (const name of ["old.part", "mine.txt"]) await utimes(join(folder, name), 1000, 1000);
  await keep("a", "x");
  expect(await names()).toEqual(["a", "m", "n"]);
});

test("jobs get their packages even if the cache cannot be written", async () => {
  await rm(folder, { recursive: true });
  await keep("a", "one");
  expect(await find("a")).toBeNull();
});

test("a file that cannot be read counts as missing", async () => {
  // A folder opens like a file, and fails at the first read.
  await mkdir(file("a"));
  expect(await find("a")).toBeNull();
});
