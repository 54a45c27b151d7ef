import { readdirSync, readlinkSync, renameSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { isStoreOutage } from "../../store/outage.ts";
import { walFile, walSync } from "./wal-sync.node.ts";
import { tempFolder } from "../../../shared/testing/temp-folder.ts";

/** A disk whose syncs end when the test says so. */
function slowDisk() {
  const syncs: PromiseWithResolvers<void>[] = [];
  const sync = () => {
    const begun = Promise.withResolvers<void>();
    syncs.push(begun);
    return begun.promise;
  };
  return { syncs, log: walSync(sync) };
}

test("without writes there is no sync", async () => {
  const { syncs, log } = slowDisk();
  await log.synced();
  expect(syncs).toHaveLength(0);
});

test("commits during a sync are in the next sync, which all waiters share", async () => {
  const { syncs, log } = slowDisk();
  const ended: string[] = [];
  log.wrote();
  const first = log.synced().then(() => ended.push("first"));
  log.wrote();
  const later = ["second", "third"].map((name) => log.synced().then(() => ended.push(name)));
  expect(syncs).toHaveLength(1);

  syncs[0]?.resolve();
  await first;
  expect(ended).toEqual(["first"]);
  syncs[1]?.resolve();
  await Promise.all(later);
  expect(syncs).toHaveLength(2);
});

test("a failed sync rejects all its waiters, and the next waiter gets a new sync", async () => {
  const { syncs, log } = slowDisk();
  log.wrote();
  const waiting = Promise.allSettled([log.synced(), log.synced()]);
  syncs[0]?.reject(new Error("EIO"));
  expect((await waiting).map(({ status }) => status)).toEqual(["rejected", "rejected"]);
  const again = log.synced();
  syncs[1]?.resolve();
  await again;
});

test("a commit that nobody waits for is synced as well", async () => {
  const synced = Promise.withResolvers<void>();
  walSync(async () => synced.resolve()).wrote();
  await expect(synced.promise).resolves.toBeUndefined();
});

test("a file that cannot be synced is an outage of the store; a missing file counts as on disk", async () => {
  const folder = tempFolder();
  // The kernel refuses to sync a file that is not on a disk.
  symlinkSync("/proc/self/stat", join(folder, "refused-wal"));
  await expect(walFile(join(folder, "refused")).sync()).rejects.toSatisfy(isStoreOutage);
  await walFile(join(folder, "gone")).sync();
});

test("a log that is replaced while it opens is closed; the next sync is of its replacement", async () => {
  const folder = tempFolder();
  const path = join(folder, "airlock.db-wal");
  writeFileSync(path, "");
  const file = walFile(join(folder, "airlock.db"));
  const first = file.sync();
  file.forget();
  await first;
  renameSync(path, join(folder, "before"));
  writeFileSync(path, "");
  await file.sync();
  await expect.poll(() => filesOpenIn(folder), { timeout: 30_000 }).toEqual([path]);
  file.forget();
});

function filesOpenIn(folder: string): string[] {
  const targets = readdirSync("/proc/self/fd").map((fd) => {
    try {
      return readlinkSync(`/proc/self/fd/${fd}`);
    } catch {
      return "";
    }
  });
  return targets.filter((target) => target.startsWith(folder));
}
