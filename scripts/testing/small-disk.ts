import { execFileSync } from "node:child_process";
import { mkdirSync, openSync, closeSync, writeSync, rmSync } from "node:fs";
import { join } from "node:path";

/** A file system of its own, in memory, that can be filled to its last byte. Needs root. */
export type SmallDisk = Disposable & {
  readonly path: string;
  readonly fill: () => void;
  readonly free: () => void;
};

export function makeSmallDisk(path: string, sizeMb: number): SmallDisk {
  mkdirSync(path, { recursive: true });
  execFileSync("mount", ["-t", "tmpfs", "-o", `size=${sizeMb}m,mode=755`, "tmpfs", path]);
  const ballast = join(path, "ballast");
  return {
    path,
    fill: () => fill(ballast),
    free: () => rmSync(ballast, { force: true }),
    // What is left open by a process that was killed keeps a plain umount from it.
    [Symbol.dispose]: () => void execFileSync("umount", ["--lazy", path]),
  };
}

function fill(ballast: string): void {
  const file = openSync(ballast, "a");
  try {
    for (const piece of [Buffer.alloc(1024 ** 2), Buffer.alloc(512)]) {
      while (writeWhole(file, piece));
    }
  } finally {
    closeSync(file);
  }
}

/** Whether there was room for all of it. */
function writeWhole(file: number, piece: Buffer): boolean {
  try {
    return writeSync(file, piece) === piece.length;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOSPC") return false;
    throw error;
  }
}
