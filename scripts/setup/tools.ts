import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, renameSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { OperatorError } from "../command/operator-error.ts";
import type { Tier } from "../test/tiers.ts";
import { aptInstall, aptUpdate, hasCommand } from "./install-engine.ts";
import { runStep } from "./run-step.ts";
import { withSetupLock } from "./setup-lock.ts";
import { LOG_DIR } from "./setup-log.ts";

/** What tests and set-up run beside npm's packages and the container engine. */
export type Tool = {
  /** The tiers of tests that need it; set-up installs it for no other. */
  tiers: readonly Tier[];
  isThere: () => boolean;
  /** The Debian packages that bring it. */
  packages: readonly string[];
  /** A folder to unpack them into, for a package that would start a service when installed. */
  unpackInto?: string;
};

export type ToolName =
  | "chromium"
  | "swift"
  | "docker-registry"
  | "podman"
  | "network tools"
  | "compose"
  | "systemd-analyze"
  | "debootstrap";

/** Where Debian's package puts the browser. */
export const CHROMIUM = "/usr/bin/chromium";
const SWIFT = "/usr/lib/python3/dist-packages/swift";
const REGISTRY_FOLDER = "/var/cache/airlock/docker-registry";
const REGISTRY = join(REGISTRY_FOLDER, "usr/bin/docker-registry");

const has =
  (...commands: string[]) =>
  () =>
    commands.every(hasCommand);

export const tools: Record<ToolName, Tool> = {
  // The browser of the tests of /docs.
  chromium: { tiers: ["service"], isThere: () => existsSync(CHROMIUM), packages: ["chromium"] },
  // OpenStack Swift, the S3 service of the tests of the artifact store.
  swift: {
    tiers: ["service", "lab"],
    isThere: () => existsSync(SWIFT),
    packages: ["python3-swift"],
  },
  "docker-registry": {
    tiers: ["lab"],
    isThere: () => existsSync(REGISTRY) || hasCommand("docker-registry"),
    packages: ["docker-registry"],
    unpackInto: REGISTRY_FOLDER,
  },
  // uidmap is for a rootless one.
  podman: {
    tiers: ["lab"],
    isThere: has("podman", "runc", "newuidmap"),
    packages: ["podman", "runc", "uidmap"],
  },
  // What makes networks and breaks them.
  "network tools": {
    tiers: ["lab"],
    isThere: has("ip", "tc", "iptables", "nsenter"),
    packages: ["iproute2", "iptables", "util-linux"],
  },
  compose: {
    tiers: ["lab"],
    isThere: () => composeCommand() !== undefined,
    packages: ["docker-compose"],
  },
  // Says what a unit file is worth without systemd running.
  "systemd-analyze": { tiers: ["lab"], isThere: has("systemd-analyze"), packages: ["systemd"] },
  // Builds the base image where none can be pulled; set-up installs it then.
  debootstrap: {
    tiers: [],
    isThere: has("debootstrap"),
    packages: ["debootstrap", "debian-archive-keyring"],
  },
};

export function toolsOf(tiers: readonly Tier[]): ToolName[] {
  return (Object.keys(tools) as ToolName[]).filter((name) =>
    tools[name].tiers.some((tier) => tiers.includes(tier)),
  );
}

/** Installs those of these tools that are missing. Returns the ones that it may not install. */
export async function installTools(names: readonly ToolName[]): Promise<ToolName[]> {
  const missing = missingOf(names);
  if (missing.length === 0 || !mayInstall()) return missing;
  await withSetupLock(() => installNow(names));
  return [];
}

/** The same for a caller that holds the set-up lock and may install. */
export async function installNow(names: readonly ToolName[]): Promise<void> {
  const missing = missingOf(names).map((name) => tools[name]);
  if (missing.length === 0) return;
  await aptUpdate();
  const packages = missing.filter(({ unpackInto }) => !unpackInto).flatMap((tool) => tool.packages);
  if (packages.length > 0) await aptInstall(packages);
  for (const { packages: own, unpackInto } of missing)
    if (unpackInto) await unpack(own, unpackInto);
}

function missingOf(names: readonly ToolName[]): ToolName[] {
  return names.filter((name) => !tools[name].isThere());
}

/** The same where nothing works without them. Throws OperatorError. */
export async function requireTools(names: readonly ToolName[], forWhat: string): Promise<void> {
  const missing = await installTools(names);
  if (missing.length === 0) return;
  const packages = missing.flatMap((name) => tools[name].packages).join(" ");
  throw new OperatorError(
    `${forWhat} needs ${missing.join(", ")}: install it (sudo apt-get install ${packages}), then run this again`,
  );
}

/** The program of the image registry that tests run. */
export function registryProgram(): string {
  return existsSync(REGISTRY) ? REGISTRY : "docker-registry";
}

/** The command of Compose here: Docker's plug-in, else Debian's package; undefined where there is none. */
export function composeCommand(): string[] | undefined {
  const plugin = spawnSync("docker", ["compose", "version"], { stdio: "ignore" });
  if (plugin.status === 0) return ["docker", "compose"];
  return hasCommand("docker-compose") ? ["docker-compose"] : undefined;
}

function mayInstall(): boolean {
  return process.getuid?.() === 0 && hasCommand("apt-get");
}

async function unpack(packages: readonly string[], folder: string): Promise<void> {
  const partial = `${folder}.partial`;
  rmSync(partial, { recursive: true, force: true });
  mkdirSync(dirname(folder), { recursive: true });
  mkdirSync(partial);
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
