import { execFileSync } from "node:child_process";
import { cpSync, createWriteStream, mkdirSync, rmSync, utimesSync } from "node:fs";
import { join } from "node:path";
import { pipeline } from "node:stream/promises";
import type { Readable } from "node:stream";
import type Docker from "dockerode";
import { say } from "../../command/say.ts";

/** Where the guest finds what the project's disk holds. */
export const IN_GUEST = { project: "/opt/airlock", baseImage: "/opt/base-image.tar" };

/** Not in git: `scripts/run` makes it, also before this file runs. */
const generated = "clients/typescript/src/generated.ts";

/**
 * Makes the project's disk in `folder`: a clone of the committed HEAD with this checkout's
 * node_modules, and the base image as a tar file. All that is slow under emulation is done here.
 */
export async function makeProjectDisk(
  folder: string,
  docker: Docker,
  baseImage: string,
): Promise<string> {
  const head = git("rev-parse", "--short", "HEAD");
  const changed = git("status", "--porcelain") === "" ? "" : "; uncommitted changes are left out";
  say(`the guest gets commit ${head}${changed}`);

  const staging = join(folder, "staging");
  const clone = join(staging, "airlock");
  mkdirSync(staging);
  git("clone", "--quiet", "--no-hardlinks", ".", clone);
  execFileSync("cp", ["-a", "node_modules", join(clone, "node_modules")]);
  cpSync(generated, join(clone, generated));
  // Newer than the lock file of the clone, so that `scripts/run` does not install again.
  const now = new Date();
  utimesSync(join(clone, "node_modules/.package-lock.json"), now, now);

  const archive = (await docker.getImage(baseImage).get()) as Readable;
  await pipeline(archive, createWriteStream(join(staging, "base-image.tar")));

  const disk = join(folder, "project.img");
  execFileSync("truncate", ["-s", "6G", disk]);
  execFileSync("mke2fs", ["-q", "-t", "ext4", "-d", staging, disk]);
  rmSync(staging, { recursive: true });
  return disk;
}

function git(...args: string[]): string {
  return execFileSync("git", args, { encoding: "utf8" }).trim();
}
