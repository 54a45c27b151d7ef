import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { Readable } from "node:stream";
import { beforeEach, expect, test, vi } from "vitest";
import { tempFolder } from "../../shared/testing/temp-folder.ts";
import type { LeasedFile } from "../../shared/wire/file.ts";
import { JobRefusal } from "../policy/refusal.ts";
import { createFileStore, type FileStore, type OpenFile } from "./file-store.ts";

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
