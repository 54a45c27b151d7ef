import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { debianOf, findPython } from "../../agent/sandbox/testing/find-python.ts";
import { hasCommand } from "./engine/install-engine.ts";
import type { StandIn } from "./images/stand-in.ts";

/** The tiers of tests, in the order they run. */
export const tiers = ["unit", "service", "engine", "zygote", "lab"] as const;
export type Tier = (typeof tiers)[number];

/** A program that tests and set-up need besides npm's packages and the container engine. */
export type Tool = {
  /** The tiers of tests that need it; set-up installs it only for these. */
  tiers: readonly Tier[];
  isThere: () => boolean;
  /** The Debian packages that contain it. */
  packages: readonly string[];
  /** A folder to unpack them into, for a package that would start a service when installed. */
  unpackInto?: string;
  /** Instead of packages: a Debian release with its Python, and the folder for it. */
  debian?: StandIn & { folder: string };
};

export type ToolName = keyof typeof table;

/** The browser's path in Debian's package. */
export const CHROMIUM = "/usr/bin/chromium-headless-shell";
const SWIFT = "/usr/lib/python3/dist-packages/swift";
const REGISTRY_FOLDER = "/var/cache/airlock/docker-registry";
const REGISTRY = join(REGISTRY_FOLDER, "usr/bin/docker-registry");

const has =
  (...commands: string[]) =>
  () =>
    commands.every(hasCommand);

const canImport = (modules: string) =>
  spawnSync("python3", ["-c", `import ${modules}`]).status === 0;

const table = {
  // Supervisors that run on this machine get a loopback of their own.
  ip: { tiers: ["engine", "zygote"], isThere: has("ip"), packages: ["iproute2"] },
  // The browser for the tests of /docs and the console. Without windows: drawing them took most of Chromium's CPU time.
  chromium: {
    tiers: ["service", "engine"],
    isThere: () => existsSync(CHROMIUM),
    packages: ["chromium-headless-shell"],
  },
  // The Python client runs on this machine's Python.
  python3: { tiers: ["service", "engine"], isThere: has("python3"), packages: ["python3"] },
  // The HTTP client of most Python programs; pip has a copy.
  requests: {
    tiers: ["service"],
    isThere: () => ["requests", "pip._vendor.requests"].some(canImport),
    packages: ["python3-requests"],
  },
  // Examples of the documents.
  "curl and jq": { tiers: ["engine"], isThere: has("curl", "jq"), packages: ["curl", "jq"] },
  // Docker lists the processes of a container with it.
  ps: { tiers: ["engine", "zygote", "lab"], isThere: has("ps"), packages: ["procps"] },
  // Sandboxes on this machine's Python install packages.
  pip: { tiers: ["engine"], isThere: () => canImport("pip"), packages: ["python3-pip"] },
  // The command line's completion.
  fish: { tiers: ["lab"], isThere: has("fish"), packages: ["fish"] },
  zsh: { tiers: ["lab"], isThere: has("zsh"), packages: ["zsh"] },
  venv: {
    tiers: ["lab"],
    isThere: () => canImport("ensurepip, venv"),
    packages: ["python3", "python3-venv"],
  },
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
  // Rootless Podman needs uidmap.
  podman: {
    tiers: ["lab"],
    isThere: has("podman", "runc", "newuidmap"),
    packages: ["podman", "runc", "uidmap"],
  },
  // Tools that create networks and break them.
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
  // Checks unit files without a running systemd.
  "systemd-analyze": { tiers: ["lab"], isThere: has("systemd-analyze"), packages: ["systemd"] },
  // Builds the base image if it cannot be pulled; set-up installs it only then.
  debootstrap: {
    tiers: [],
    isThere: has("debootstrap"),
    packages: ["debootstrap", "debian-archive-keyring"],
  },
  "python3.9": debianPython("3.9", "bullseye"),
  "python3.11": debianPython("3.11", "bookworm"),
  "python3.13": debianPython("3.13", "trixie"),
} satisfies Record<string, Tool>;

export const tools: Record<ToolName, Tool> = table;

/**
 * A Python version that the documents promise; if this machine lacks it, set-up installs Debian's.
 */
function debianPython(python: string, suite: string): Tool {
  return {
    tiers: ["lab"],
    isThere: () => findPython(python) !== undefined,
    packages: [],
    debian: { python, suite, folder: debianOf(python) },
  };
}

export function toolsOf(tiers: readonly Tier[]): ToolName[] {
  return (Object.keys(tools) as ToolName[]).filter((name) =>
    tools[name].tiers.some((tier) => tiers.includes(tier)),
  );
}

/** The program of the image registry that tests run. */
export function registryProgram(): string {
  return existsSync(REGISTRY) ? REGISTRY : "docker-registry";
}

/**
 * The command of Compose: Docker's plug-in, else Debian's package; undefined if there is neither.
 */
export function composeCommand(): string[] | undefined {
  const plugin = spawnSync("docker", ["compose", "version"], { stdio: "ignore" });
  if (plugin.status === 0) return ["docker", "compose"];
  return hasCommand("docker-compose") ? ["docker-compose"] : undefined;
}
