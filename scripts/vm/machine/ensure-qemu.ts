import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, renameSync, rmSync } from "node:fs";
import { join } from "node:path";
import { debianMirror } from "../../setup/images/debian-mirror.ts";
import { runStep } from "../../setup/run-step.ts";
import { withSetupLock } from "../../setup/setup-lock.ts";
import { LOG_DIR } from "../../setup/setup-log.ts";
import { CACHE } from "./build-image.ts";

const PROGRAM = "qemu-system-x86_64";
/** What older ones emulate kills the guest's kernel, for example cmpxchg16b and its own patching (7.2, Debian 12's). */
const OLDEST = 10;

/** The command that starts a QEMU which is new enough: this machine's own, else Debian 13's from a folder. */
export async function ensureQemu(): Promise<readonly string[]> {
  if (isNewEnough(versionOf([PROGRAM]))) return [PROGRAM];
  const folder = join(CACHE, "qemu-debian13");
  await withSetupLock(async () => {
    if (!existsSync(folder)) await unpack(folder);
  }, "airlock-vm-qemu");
  return unpacked(folder);
}

async function unpack(folder: string): Promise<void> {
  const partial = `${folder}.partial`;
  mkdirSync(CACHE, { recursive: true });
  rmSync(partial, { recursive: true, force: true });
  await runStep({
    title: "unpacking Debian 13's QEMU (about a minute)",
    command: "sh",
    args: [join(import.meta.dirname, "unpack-qemu.sh"), partial, debianMirror()],
    logFile: join(LOG_DIR, "vm-qemu.log"),
  });
  renameSync(partial, folder);
}

/** Runs the program of another system with that system's own libraries. */
function unpacked(folder: string): readonly string[] {
  const libraries = join(folder, "usr/lib/x86_64-linux-gnu");
  const data = ["usr/share/qemu", "usr/share/seabios"].flatMap((path) => [
    "-L",
    join(folder, path),
  ]);
  const loader = join(folder, "usr/lib64/ld-linux-x86-64.so.2");
  return [loader, "--library-path", libraries, join(folder, "usr/bin", PROGRAM), ...data];
}

function versionOf(command: readonly string[]): string {
  const [program = "", ...args] = command;
  return spawnSync(program, [...args, "--version"], { encoding: "utf8" }).stdout ?? "";
}

export function isNewEnough(version: string): boolean {
  return Number(/version (\d+)\./.exec(version)?.[1] ?? 0) >= OLDEST;
}
