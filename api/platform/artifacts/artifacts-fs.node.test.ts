import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readlinkSync } from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { artifactFolder } from "./artifacts-fs.node.ts";
import { tempFolder } from "../../../shared/testing/temp-folder.ts";

let folder: string;
beforeEach(() => {
  folder = tempFolder();
});
afterEach(() => vi.restoreAllMocks());

/** Paths of what is synced from now on; the syncs still happen. */
async function watchSyncs(): Promise<string[]> {
  const synced: string[] = [];
  const file = await open(folder);
  const prototype = Object.getPrototypeOf(file) as FileHandle;
  await file.close();
  const sync = Reflect.get(prototype, "sync");
  vi.spyOn(prototype, "sync").mockImplementation(function (this: FileHandle) {
    synced.push(readlinkSync(`/proc/self/fd/${this.fd}`));
    return sync.call(this);
  });
  return synced;
}

test("a put syncs the file and every folder that leads to it, also those that another put has just made", async () => {
  const bytes = new TextEncoder().encode("content");
  const sha256 = createHash("sha256").update(bytes).digest("hex");
  const root = join(folder, "artifacts");
  mkdirSync(join(root, "job", "lease"), { recursive: true });
  const synced = await watchSyncs();
  const announced = { sizeBytes: bytes.length, sha256 };
  await artifactFolder(root).put("job/lease/sub/a.txt", new Blob([bytes]).stream(), announced);
  expect(synced[0]).toMatch(/\/incoming\/[^/]+$/);
  expect(synced.slice(1).sort()).toEqual(
    ["", "artifacts", "artifacts/job", "artifacts/job/lease", "artifacts/job/lease/sub"].map(
      (path) => join(folder, path).replace(/\/$/, ""),
    ),
  );
});

test.each(["", ".", "..", "../beside", "./", "job/..", "job/../../beside"])(
  "nothing is removed under the prefix %j, which leads elsewhere",
  async (prefix) => {
    for (const name of ["beside", "artifacts/job"]) {
      mkdirSync(join(folder, name), { recursive: true });
    }
    await expect(artifactFolder(join(folder, "artifacts")).remove(prefix)).rejects.toThrow(
      "no prefix of stored bytes",
    );
    expect(existsSync(join(folder, "beside"))).toBe(true);
    expect(existsSync(join(folder, "artifacts/job"))).toBe(true);
  },
);
