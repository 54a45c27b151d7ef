import { spawnSync } from "node:child_process";
import { accessSync, constants } from "node:fs";
import { join } from "node:path";
import { say } from "../../command/say.ts";
import { runStep } from "../run-step.ts";
import { LOG_DIR } from "../setup-log.ts";

const APT = { command: "apt-get", env: { DEBIAN_FRONTEND: "noninteractive" } };

/** Whether a program of this name is on the PATH. */
export function hasCommand(name: string): boolean {
  const dirs = [...(process.env["PATH"] ?? "").split(":"), "/usr/sbin", "/sbin"];
  return dirs.some((dir) => isExecutable(join(dir, name)));
}

/** Installs Docker, and gVisor's runtime if the distribution has it. Needs root and apt. */
export async function installEngine(): Promise<void> {
  say("no container engine found: installing Docker with apt");
  await aptUpdate();
  const runsc = aptHas("runsc") ? ["runsc"] : [];
  await aptInstall(["docker.io", "iptables", "ca-certificates", ...runsc]);
}

/**
 * Refreshes apt's lists. An unreachable repository is not an error: installing a package from it
 * fails later.
 */
export async function aptUpdate(): Promise<void> {
  const title = "reading the package lists";
  try {
    await runStep({ ...APT, title, args: ["update"], logFile: `${LOG_DIR}/apt-update.log` });
  } catch {
    say(`${title}: not all could be read, going on (see ${LOG_DIR}/apt-update.log)`);
  }
}

/** Installs packages without their recommendations. */
export async function aptInstall(packages: readonly string[]): Promise<void> {
  await runStep({
    ...APT,
    title: `installing ${packages.join(", ")}`,
    args: [
      "-o",
      "DPkg::Lock::Timeout=120",
      "install",
      "-y",
      "--no-install-recommends",
      ...packages,
    ],
    logFile: `${LOG_DIR}/apt-install.log`,
  });
}

function aptHas(name: string): boolean {
  return spawnSync("apt-cache", ["show", "--quiet=0", name], { stdio: "ignore" }).status === 0;
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
