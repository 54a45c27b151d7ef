import { spawn } from "node:child_process";
import { basename, dirname } from "node:path";
import type Docker from "dockerode";
import { ensureBaseImage } from "./base-image.ts";
import { makeDerivedImage, isThere, nameOf } from "./derived-image.ts";
import { withSetupLock } from "../setup-lock.ts";

const IMAGE = { repo: "airlock/languages", tag: "latest" };

/** Bash and Perl are in the base image. */
const PACKAGES =
  "gcc g++ libc6-dev golang-go rustc default-jdk-headless mono-mcs lua5.4 php-cli r-base-core ruby";

const INSTALL = `set -e
export DEBIAN_FRONTEND=noninteractive
apt-get update
apt-get install -y --no-install-recommends ${PACKAGES}
rm -rf /var/cache/apt/* /var/lib/apt/lists/* /usr/share/doc /usr/share/man`;

/**
 * Returns the name of an image that runs every language, for tests. If it is missing, makes it of Debian's packages and
 * of the Node that runs this, as Debian's is too old for TypeScript.
 */
export async function ensureLanguagesImage(docker: Docker): Promise<string> {
  if (await isThere(docker, IMAGE)) return nameOf(IMAGE);
  const base = await ensureBaseImage(docker, "python:3.13-slim");
  await withSetupLock(async () => {
    if (await isThere(docker, IMAGE)) return;
    await makeDerivedImage(docker, IMAGE, base, ["sh", "-c", INSTALL], async (container) => {
      const { execPath } = process;
      const tar = spawn("tar", ["-C", dirname(execPath), "-c", basename(execPath)], {
        stdio: ["ignore", "pipe", "inherit"],
      });
      await container.putArchive(tar.stdout, { path: "/usr/local/bin" });
    });
  });
  return nameOf(IMAGE);
}
