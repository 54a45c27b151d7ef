import { mkdirSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { aptInstall, aptUpdate } from "../engine/install-engine.ts";
import { runStep } from "../run-step.ts";
import { LOG_DIR } from "../setup-log.ts";
import type { StandIn } from "./stand-in.ts";
import { tools } from "../tools.ts";

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

/**
 * Runs the following command in namespaces that end with this process, so that no mount is left.
 */
const CONFINED = ["--pdeathsig=KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child"];

export type Debian = StandIn & {
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
