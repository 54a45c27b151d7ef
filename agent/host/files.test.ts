import { execFileSync } from "node:child_process";
import { createHash, randomUUID } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { chmod, mkdir, readdir, stat, utimes, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { Readable } from "node:stream";
import { beforeEach, describe, expect, it, test, vi } from "vitest";
import { needs } from "../../scripts/testing/needs.ts";
import { tempFolder } from "../../shared/testing/test-file.ts";
import type { LeasedFile } from "../../shared/wire/files.ts";
import {
  createFileStore,
  describeForeign,
  type FileStore,
  type OpenFile,
  openSpoolDir,
  ownerOf,
  toEvict,
} from "./files.ts";
import { JobRefusal } from "./policy.ts";

describe("file store", () => {
  const never = new AbortController().signal;
  let folder: string;
  let store: FileStore;
  beforeEach(() => {
    folder = tempFolder();
    store = createFileStore(folder, 100);
  });

  const borrow = (files: LeasedFile[], open: OpenFile, signal: AbortSignal, tenant = "a") =>
    store.borrow(tenant, files, open, signal);

  const contents = new Map<string, string>();
  function file(letter: string, bytes = 40): LeasedFile {
    const content = letter.repeat(bytes);
    const sha256 = createHash("sha256").update(content).digest("hex");
    contents.set(sha256, content);
    return { name: letter, size_bytes: bytes, sha256 };
  }
  const [a, b, c] = [file("a"), file("b"), file("c")];

  /** Serves the bytes, and counts how often they were asked for. */
  const bringing = () =>
    vi.fn<OpenFile>(({ sha256 }) =>
      Promise.resolve(Readable.from([Buffer.from(contents.get(sha256)!)])),
    );

  test("a file is fetched once, for jobs at the same time and for later ones", async () => {
    const open = bringing();
    const [first, second] = await Promise.all([
      borrow([a, { ...a, name: "again" }], open, never),
      borrow([a, b], open, never),
    ]);
    expect(readFileSync(first.pathOf(a.sha256), "utf8")).toBe("a".repeat(40));
    expect(second.pathOf(a.sha256)).toBe(first.pathOf(a.sha256));
    first.giveBack();
    second.giveBack();
    await borrow([b], open, never);
    expect(open).toHaveBeenCalledTimes(2);
  });

  test("another tenant's job fetches a file itself, also at the same time", async () => {
    const open = bringing();
    const [own, others] = await Promise.all([
      borrow([a], open, never),
      borrow([a], open, never, "b"),
    ]);
    expect(others.pathOf(a.sha256)).not.toBe(own.pathOf(a.sha256));
    expect(open).toHaveBeenCalledTimes(2);
  });

  test("without room, the tenant that holds most loses files, not the one that used its own longest ago", async () => {
    const open = bringing();
    const [small, large, larger] = [file("s", 20), file("l", 40), file("m", 40)];
    (await borrow([small], open, never, "b")).giveBack();
    for (const one of [large, larger]) (await borrow([one], open, never)).giveBack();
    (await borrow([c], open, never)).giveBack();
    open.mockClear();
    (await borrow([small], open, never, "b")).giveBack();
    expect(open).not.toHaveBeenCalled();
  });

  test("what a job asks for counts as its tenant's: it displaces the tenant's own files, not the larger ones of another", async () => {
    const open = bringing();
    (await borrow([b], open, never, "b")).giveBack();
    (await borrow([file("s", 30)], open, never)).giveBack();
    (await borrow([c], open, never)).giveBack();
    open.mockClear();
    (await borrow([b], open, never, "b")).giveBack();
    expect(open).not.toHaveBeenCalled();
  });

  test("a file in use stays, though its tenant holds most and used the file longest ago", async () => {
    const open = bringing();
    const inUse = await borrow([a], open, never);
    (await borrow([file("s", 30)], open, never)).giveBack();
    await borrow([b], open, never, "b");
    await vi.waitFor(() => expect(readdirSync(folder)).toHaveLength(2));
    expect(readFileSync(inUse.pathOf(a.sha256), "utf8")).toBe("a".repeat(40));
  });

  test("without room, unused files are removed, the least recently used first", async () => {
    const open = bringing();
    for (const one of [a, b, a]) (await borrow([one], open, never)).giveBack();
    (await borrow([c], open, never)).giveBack();
    await borrow([a], open, never);
    expect(open).toHaveBeenCalledTimes(3);
    await vi.waitFor(() => expect(readdirSync(folder)).toHaveLength(2));
  });

  test("files in use stay; a job waits until there is room", async () => {
    const first = await borrow([a, b], bringing(), never);
    const second = borrow([b, c], bringing(), never);
    const given = vi.fn<() => void>();
    void second.then(given);
    await new Promise(setImmediate);
    expect(given).not.toHaveBeenCalled();
    expect(readFileSync(first.pathOf(a.sha256), "utf8")).toBe("a".repeat(40));
    first.giveBack();
    expect(readFileSync((await second).pathOf(c.sha256), "utf8")).toBe("c".repeat(40));
  });

  test("a job whose files can never fit is refused, with the setting to change", async () => {
    const refused = borrow([a, b, c], bringing(), never);
    await expect(refused).rejects.toThrow(JobRefusal);
    await expect(refused).rejects.toThrow("input_files_bytes");
  });

  test.each([
    ["other bytes", "x".repeat(40)],
    ["fewer bytes", "a"],
    ["more bytes", "a".repeat(41)],
  ])("bytes that are not the announced ones are not kept: %s", async (_what, sent) => {
    const open: OpenFile = () => Promise.resolve(Readable.from([Buffer.from(sent)]));
    await expect(borrow([a], open, never)).rejects.toThrow("other bytes");
    await vi.waitFor(() => expect(readdirSync(folder)).toEqual([]));
    await borrow([a], bringing(), never);
  });

  test("a download ends when no job waits for it, and leaves nothing", async () => {
    const end = new AbortController();
    const asked = Promise.withResolvers<AbortSignal>();
    const open: OpenFile = (_, signal) => {
      asked.resolve(signal);
      return Promise.resolve(new Readable({ read() {} }));
    };
    const waiting = borrow([a], open, end.signal);
    const signal = await asked.promise;
    end.abort(new Error("cancelled"));
    await expect(waiting).rejects.toThrow("cancelled");
    expect(signal.aborted).toBe(true);
    await vi.waitFor(() => expect(readdirSync(folder)).toEqual([]));
  });

  test("a job that shares a download fetches the file itself if the other's lease ends", async () => {
    const lost = Promise.withResolvers<Readable>();
    const asked = Promise.withResolvers<void>();
    const failing: OpenFile = () => {
      asked.resolve();
      return lost.promise;
    };
    const first = borrow([a], failing, never);
    const open = bringing();
    const second = borrow([a], open, never);
    await asked.promise;
    lost.reject(new Error("the lease is over"));
    await expect(first).rejects.toThrow("the lease is over");
    expect(readFileSync((await second).pathOf(a.sha256), "utf8")).toBe("a".repeat(40));
    expect(open).toHaveBeenCalledTimes(1);
  });
});

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

describe("spool dir", () => {
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
});
