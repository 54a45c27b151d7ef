import { createHash, randomBytes } from "node:crypto";
import { rmSync } from "node:fs";
import { buffer } from "node:stream/consumers";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type ArtifactStore, UploadMismatch } from "../../deps.ts";
import { startS3 } from "../../testing/start-s3.ts";
import { artifactFolder } from "./artifacts-fs.node.ts";
import { artifactsS3 } from "./artifacts-s3.node.ts";
import { needs } from "../../../scripts/testing/needs.ts";
import { tempFolder } from "../../../shared/testing/temp-folder.ts";

interface Stored {
  store: ArtifactStore;
  close(): Promise<void>;
}

const timeoutMs = 30_000;

async function inFolder(): Promise<Stored> {
  const folder = tempFolder();
  const close = () => Promise.resolve(rmSync(folder, { recursive: true }));
  return { store: artifactFolder(folder), close };
}

async function inBucket(): Promise<Stored> {
  const service = await startS3();
  const store = artifactsS3({ ...service.bucket, pathStyle: true, timeoutMs });
  return {
    store,
    async close() {
      await store.close();
      await service.close();
    },
  };
}

function announced(bytes: Uint8Array) {
  return { sizeBytes: bytes.length, sha256: createHash("sha256").update(bytes).digest("hex") };
}

/** A body that comes in parts of 1,000 bytes. */
function streamed(bytes: Uint8Array): ReadableStream<Uint8Array> {
  let at = 0;
  return new ReadableStream({
    pull(controller) {
      if (at >= bytes.length) return controller.close();
      controller.enqueue(bytes.subarray(at, (at += 1000)));
    },
  });
}

async function read(store: ArtifactStore, key: string, range?: { offset: number; length: number }) {
  const stream = await store.get(key, range);
  return stream && (await buffer(stream));
}

const bytes = new Uint8Array(randomBytes(100_000));

describe("a folder", () => {
  testStore(inFolder);
});
describe("an S3 bucket", needs("swift"), () => {
  testStore(inBucket);
});

function testStore(open: () => Promise<Stored>): void {
  let stored: Stored;
  let store: ArtifactStore;
  beforeAll(async () => {
    stored = await open();
    ({ store } = stored);
  });
  afterAll(() => stored?.close());

  test("returns what was put, whole and in part", async () => {
    await store.put("a/1/x", streamed(bytes), announced(bytes));
    expect(await read(store, "a/1/x")).toEqual(Buffer.from(bytes));
    for (const range of [
      { offset: 0, length: 1 },
      { offset: 99_990, length: 10 },
      { offset: 1234, length: 70_000 },
    ]) {
      const part = bytes.subarray(range.offset, range.offset + range.length);
      expect(await read(store, "a/1/x", range)).toEqual(Buffer.from(part));
    }
    await store.put("a/1/x", streamed(bytes), announced(bytes));
    expect(await read(store, "a/1/x")).toEqual(Buffer.from(bytes));
  });

  test("keeps an empty file", async () => {
    const nothing = new Uint8Array();
    await store.put("a/1/empty", streamed(nothing), announced(nothing));
    expect(await read(store, "a/1/empty")).toEqual(Buffer.alloc(0));
    expect(await read(store, "a/1/nothing")).toBeUndefined();
  });

  test("computes the hash of what was put, if it was not announced", async () => {
    const { sizeBytes, sha256 } = announced(bytes);
    expect(await store.put("a/2/x", streamed(bytes), { sizeBytes })).toBe(sha256);
    expect(await store.put("a/2/y", streamed(bytes), { sizeBytes, sha256 })).toBe(sha256);
    expect(await read(store, "a/2/x")).toEqual(Buffer.from(bytes));
    const empty = await store.put("a/2/z", streamed(new Uint8Array()), { sizeBytes: 0 });
    expect(empty).toBe(announced(new Uint8Array()).sha256);
    for (const wrong of [sizeBytes - 1, sizeBytes + 1]) {
      const put = store.put("a/2/w", streamed(bytes), { sizeBytes: wrong });
      await expect(put).rejects.toThrow(UploadMismatch);
      expect(await read(store, "a/2/w")).toBeUndefined();
    }
  });

  test.each([
    ["another hash", streamed(bytes), { ...announced(bytes), sha256: "0".repeat(64) }],
    ["fewer bytes", streamed(bytes.subarray(1)), announced(bytes)],
    ["more bytes", streamed(bytes), announced(bytes.subarray(1))],
    ["a byte for an empty file", streamed(bytes.subarray(0, 1)), announced(bytes.subarray(0, 0))],
    [
      "another hash of an empty file",
      streamed(new Uint8Array()),
      { sizeBytes: 0, sha256: "0".repeat(64) },
    ],
  ])("shows nothing of an upload with %s than announced", async (name, body, promise) => {
    await expect(store.put(`b/1/${name.length}`, body, promise)).rejects.toThrow(UploadMismatch);
    expect(await read(store, `b/1/${name.length}`)).toBeUndefined();
  });

  test("shows nothing of an upload that breaks off", async () => {
    const broken = new ReadableStream<Uint8Array>({
      start: (controller) => controller.enqueue(bytes.subarray(0, 99_999)),
      pull: (controller) => controller.error(new TypeError("terminated")),
    });
    await expect(store.put("b/2/x", broken, announced(bytes))).rejects.toThrow("broke off");
    expect(await read(store, "b/2/x")).toBeUndefined();
  });

  test("removes what is under a prefix and nothing else", async () => {
    const small = bytes.subarray(0, 3);
    for (const key of ["c/1/v", "c/1/w", "c/1/x", "c/1/y", "c/2/x", "c2/1/x"]) {
      await store.put(key, streamed(small), announced(small));
    }
    await store.remove("c/1");
    await store.remove("c/1");
    expect(await read(store, "c/1/y")).toBeUndefined();
    expect(await read(store, "c/2/x")).toBeDefined();
    await store.remove("c");
    expect(await read(store, "c/2/x")).toBeUndefined();
    expect(await read(store, "c2/1/x")).toEqual(Buffer.from(small));
  });
}
