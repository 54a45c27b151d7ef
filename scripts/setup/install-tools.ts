import { execFileSync } from "node:child_process";
import { mkdirSync, renameSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { OperatorError } from "../command/operator-error.ts";
import { debianMirror } from "./images/debian-mirror.ts";
import { withDebian } from "./images/debootstrap.ts";
import { aptInstall, aptUpdate, hasCommand } from "./engine/install-engine.ts";
import { runStep } from "./run-step.ts";
import { withSetupLock } from "./setup-lock.ts";
import { LOG_DIR } from "./setup-log.ts";
import { type Tool, type ToolName, tools } from "./tools.ts";

/** Installs the missing tools. Returns those that it may not install. */
export async function installTools(names: readonly ToolName[]): Promise<ToolName[]> {
  const missing = missingOf(names);
  if (missing.length === 0 || !mayInstall()) return missing;
  await withSetupLock(async () => {
    const wanted = missingOf(names).map((name) => tools[name]);
    const packages = wanted.flatMap((tool) => (isPlain(tool) ? tool.packages : []));
    if (wanted.some((tool) => tool.packages.length > 0)) await aptUpdate();
    if (packages.length > 0) await aptInstall(packages);
    for (const tool of wanted.filter((other) => !isPlain(other))) await installApart(tool);
  });
  return missingOf(names);
}

/** Installs the missing tools, and throws OperatorError if one is still missing. */
export async function requireTools(names: readonly ToolName[], forWhat: string): Promise<void> {
  const missing = await installTools(names);
  if (missing.length === 0) return;
  const packages = missing.flatMap((name) => tools[name].packages).join(" ");
  throw new OperatorError(
    `${forWhat} needs ${missing.join(", ")}: install it (sudo apt-get install ${packages}), then run this again`,
  );
}

function missingOf(names: readonly ToolName[]): ToolName[] {
  return names.filter((name) => !tools[name].isThere());
}

function mayInstall(): boolean {
  return process.getuid?.() === 0 && hasCommand("apt-get");
}

const isPlain = ({ unpackInto, debian }: Tool): boolean => !unpackInto && !debian;

async function installApart({ packages, unpackInto, debian }: Tool): Promise<void> {
  if (unpackInto) await unpack(packages, unpackInto);
  if (debian) {
    await withDebian(debian, debianMirror(), async (root) => {
      rmSync(debian.folder, { recursive: true, force: true });
      mkdirSync(dirname(debian.folder), { recursive: true });
      // mv also works across file systems, unlike rename.
      execFileSync("mv", [root, debian.folder]);
    });
  }
}

async function unpack(packages: readonly string[], folder: string): Promise<void> {
  const partial = `${folder}.partial`;
  rmSync(partial, { recursive: true, force: true });
  mkdirSync(partial, { recursive: true });
  await runStep({
    title: `unpacking ${packages.join(", ")}`,
    command: "sh",
    args: [
      "-ec",
      'cd "$0"; apt-get download "$@"; for deb in *.deb; do dpkg-deb --extract "$deb" .; done',
      partial,
      ...packages,
    ],
    logFile: join(LOG_DIR, "unpack.log"),
  });
  renameSync(partial, folder);
}
