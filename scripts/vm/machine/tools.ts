import { existsSync, readFileSync } from "node:fs";
import { OperatorError } from "../../command/operator-error.ts";
import { aptInstall, aptUpdate, hasCommand } from "../../setup/engine/install-engine.ts";
import { withSetupLock } from "../../setup/setup-lock.ts";

/** The programs that build the guest and reach it, each with the Debian package that brings it. */
const PACKAGE_OF: Readonly<Record<string, string>> = {
  debootstrap: "debootstrap",
  mke2fs: "e2fsprogs",
  ssh: "openssh-client",
};

/** Makes sure of these programs. Throws OperatorError where this process may not build a guest. */
export async function ensureVmTools(): Promise<void> {
  const machine = { root: process.getuid?.() === 0, apt: hasCommand("apt-get") };
  const advice = toolsAdvice(missingTools(), machine);
  if (advice !== undefined) throw new OperatorError(advice);
  if (missingTools().length === 0) return;
  await withSetupLock(async () => {
    const packages = missingTools().map((name) => PACKAGE_OF[name]!);
    if (packages.length === 0) return;
    await aptUpdate();
    await aptInstall([...packages, "debian-archive-keyring"]);
  });
}

/** What is wrong and what to do, where this process may not build a guest; undefined where it may. */
export function toolsAdvice(
  missing: readonly string[],
  machine: { root: boolean; apt: boolean },
): string | undefined {
  const packages = missing.map((name) => PACKAGE_OF[name]).join(" ");
  if (!machine.root) {
    return `npm run test:vm needs root: debootstrap makes the files of a system.\nRun it with sudo: it installs what is missing${packages && ` (${packages})`}.`;
  }
  if (missing.length === 0 || machine.apt) return undefined;
  return `npm run test:vm needs ${missing.join(", ")}, and there is no apt-get here.\nInstall them with this system's package manager (Debian's packages are ${packages}), then run this again.`;
}

function missingTools(): string[] {
  return Object.keys(PACKAGE_OF).filter((name) => !hasCommand(name));
}

/** Whether qemu can use the processor's virtualization: /dev/kvm alone does not say so. */
export function hasKvm(): boolean {
  return existsSync("/dev/kvm") && /\b(vmx|svm)\b/.test(readFileSync("/proc/cpuinfo", "utf8"));
}
