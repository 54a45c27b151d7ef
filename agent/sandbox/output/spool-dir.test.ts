import { randomUUID } from "node:crypto";
import { mkdir, mkdtemp, readdir, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, it } from "vitest";
import { openSpoolDir } from "./spool-dir.ts";

const own = randomUUID();
let root: string;

beforeEach(async () => {
  root = await mkdtemp(join(tmpdir(), "airlock-test-"));
});
afterEach(() => rm(root, { recursive: true }));

it("gives each lease a place in a private folder, and takes it back with its files", async () => {
  const spool = await openSpoolDir(join(root, "new"), own, async () => false);
  expect((await stat(join(root, "new", own))).mode & 0o777).toBe(0o700);
  await spool.folder("unused")[Symbol.asyncDispose]();
  const folder = spool.folder("lease");
  await mkdir(folder.path);
  await writeFile(join(folder.path, "0"), "x");
  await folder[Symbol.asyncDispose]();
  expect(await readdir(join(root, "new", own))).toEqual([]);
  await spool.remove();
  expect(await readdir(join(root, "new"))).toEqual([]);
});

it("removes what dead agents left, and nothing else", async () => {
  const [dead, alive] = [randomUUID(), randomUUID()];
  for (const name of [dead, alive, "photos"])
    await mkdir(join(root, name, "x"), { recursive: true });
  await openSpoolDir(root, own, async (id) => id === alive);
  expect(new Set(await readdir(root))).toEqual(new Set([own, alive, "photos"]));
});

it("tells when nothing can be written", async () => {
  const spool = await openSpoolDir(root, own, async () => false);
  await expect(spool.check()).resolves.toBeUndefined();
  await spool.remove();
  await expect(spool.check()).rejects.toThrowError("ENOENT");
});

it("says where no folder can be made", async () => {
  const opened = openSpoolDir("/proc/airlock/spool", own, async () => false);
  await expect(opened).rejects.toThrowError(
    /^cannot make \/proc\/airlock: \/proc takes no folders$/,
  );
});
