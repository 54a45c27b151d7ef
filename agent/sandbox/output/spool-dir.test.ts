import { execFileSync } from "node:child_process";
import { randomUUID } from "node:crypto";
import { chmod, mkdir, readdir, stat, utimes, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { beforeEach, expect, it } from "vitest";
import { tempFolder } from "../../../shared/testing/temp-folder.ts";
import { needs } from "../../../scripts/testing/needs.ts";
import { describeForeign, openSpoolDir } from "./spool-dir.ts";

const own = randomUUID();
const here = "here";
const reported = () => true;
let root: string;

beforeEach(async () => {
  root = tempFolder();
});

it("gives each lease a place in a private folder, and takes it back with its files", async () => {
  const spool = await openSpoolDir(join(root, "new"), own, here);
  expect((await stat(join(root, "new", own))).mode & 0o777).toBe(0o700);
  await spool.folder("unused")[Symbol.asyncDispose]();
  const folder = spool.folder("lease");
  await mkdir(folder.path);
  await writeFile(join(folder.path, "0"), "x");
  await folder[Symbol.asyncDispose]();
  expect(await readdir(join(root, "new", own))).toEqual(["host-scope"]);
  await spool.remove();
  expect(await readdir(join(root, "new"))).toEqual([]);
});

it("removes what dead agents left, and nothing else", async () => {
  const [dead, alive] = [randomUUID(), randomUUID()];
  for (const name of [dead, alive, "photos"])
    await mkdir(join(root, name, "x"), { recursive: true });
  const spool = await openSpoolDir(root, own, here);
  await spool.removeLeftOvers(async (id) => id === alive, reported);
  expect(new Set(await readdir(root))).toEqual(new Set([own, alive, "photos"]));
});

it("keeps the folder of a dead agent until its crash is reported", async () => {
  const [dead, alive] = [randomUUID(), randomUUID()];
  for (const name of [dead, alive]) await mkdir(join(root, name));
  const spool = await openSpoolDir(root, own, here);
  const asked: string[] = [];
  const notYet = (id: string) => asked.push(id) < 0;
  await spool.removeLeftOvers(async (id) => id === alive, notYet);
  expect(asked).toEqual([dead]);
  expect(new Set(await readdir(root))).toEqual(new Set([own, alive, dead]));
});

it("keeps the folder of an agent that it cannot see for ten minutes after its last sign of life", async () => {
  const elsewhere = await openSpoolDir(root, randomUUID(), "elsewhere");
  const spool = await openSpoolDir(root, own, here);
  const removeLeftOvers = () =>
    spool.removeLeftOvers(async (_id, place) => (place === here ? false : null), reported);
  await removeLeftOvers();
  await elsewhere.check();
  const longAgo = new Date(Date.now() - 10 * 60_000);
  await utimes(elsewhere.path, longAgo, longAgo);
  await elsewhere.check();
  await removeLeftOvers();
  expect(await readdir(root)).toHaveLength(2);
  await utimes(elsewhere.path, longAgo, longAgo);
  await removeLeftOvers();
  expect(await readdir(root)).toEqual([own]);
});

const folder = 0o040000;
const link = 0o120000;
it.each([
  ["its own", 1000, folder | 0o700, null],
  ["root's", 0, folder | 0o755, null],
  ["a temporary folder", 0, folder | 0o1777, null],
  ["its own link", 1000, link | 0o777, null],
  ["another user's folder", 1001, folder | 0o755, "belongs to the user 1001"],
  ["another user's link", 1001, link | 0o777, "belongs to the user 1001"],
  ["one that a group can write to", 1000, folder | 0o770, "may be written to by other users"],
  ["one that everybody can write to", 0, folder | 0o777, "may be written to by other users"],
])("a folder that is %s is used, or refused with the reason", (_whose, uid, mode, problem) => {
  expect(describeForeign({ uid, mode }, 1000)).toBe(problem);
});

it("opens no folder that another user could replace", async () => {
  await chmod(root, 0o777);
  await expect(openSpoolDir(root, own, here)).rejects.toThrowError(
    /^spool_dir .* may be written to by other users: .*choose a folder of the agent's own user$/,
  );
});

it("reports that nothing can be written", async () => {
  const spool = await openSpoolDir(root, own, here);
  await expect(spool.check()).resolves.toBeUndefined();
  await spool.remove();
  await expect(spool.check()).rejects.toThrowError("ENOENT");
});

it("names the folder that cannot be made", async () => {
  const opened = openSpoolDir("/proc/airlock/spool", own, here);
  await expect(opened).rejects.toThrowError(
    /^cannot make \/proc\/airlock: \/proc accepts no folders$/,
  );
});

it("leaves no folder on a full disk", needs("root"), async () => {
  // Room for the agent's folder, but for no file.
  execFileSync("mount", ["-t", "tmpfs", "-o", "nr_inodes=2,mode=755", "none", root]);
  try {
    await expect(openSpoolDir(root, own, here)).rejects.toThrowError("ENOSPC");
    expect(await readdir(root)).toEqual([]);
  } finally {
    execFileSync("umount", [root]);
  }
});

it("a lease's folder that cannot be removed fails nobody", needs("root"), async () => {
  const { folder } = await openSpoolDir(root, randomUUID(), "place");
  const { path, [Symbol.asyncDispose]: dispose } = folder(randomUUID());
  await mkdir(path);
  execFileSync("mount", ["-t", "tmpfs", "none", path]);
  try {
    await expect(dispose()).resolves.toBeUndefined();
  } finally {
    execFileSync("umount", [path]);
  }
});
