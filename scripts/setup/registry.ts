import { existsSync, mkdirSync, renameSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { OperatorError } from "../command/operator-error.ts";
import { aptUpdate, hasCommand } from "./install-engine.ts";
import { runStep } from "./run-step.ts";
import { withSetupLock } from "./setup-lock.ts";
import { LOG_DIR } from "./setup-log.ts";

/** Debian's package lies here unpacked: installed, it would start a service. */
const FOLDER = "/var/cache/airlock/docker-registry";
const UNPACKED = join(FOLDER, "usr/bin/docker-registry");

/** The program of the image registry that the tests run. */
export function registryProgram(): string {
  return existsSync(UNPACKED) ? UNPACKED : "docker-registry";
}

const isThere = (): boolean => existsSync(UNPACKED) || hasCommand("docker-registry");

/** Makes sure of that program: Debian's package docker-registry. */
export async function ensureRegistry(): Promise<void> {
  if (isThere()) return;
  if (process.getuid?.() !== 0 || !hasCommand("apt-get")) {
    throw new OperatorError(
      "the test of image_registry needs a registry: install it (sudo apt-get install docker-registry), then run this again",
    );
  }
  await withSetupLock(async () => {
    if (isThere()) return;
    await aptUpdate();
    const partial = `${FOLDER}.partial`;
    rmSync(partial, { recursive: true, force: true });
    mkdirSync(dirname(FOLDER), { recursive: true });
    mkdirSync(partial);
    await runStep({
      title: "unpacking docker-registry",
      command: "sh",
      args: [
        "-ec",
        'cd "$0"; apt-get download docker-registry; dpkg-deb --extract docker-registry_*.deb .',
        partial,
      ],
      logFile: join(LOG_DIR, "docker-registry.log"),
    });
    renameSync(partial, FOLDER);
  });
}
