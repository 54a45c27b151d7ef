import { execFileSync } from "node:child_process";
import { readdirSync } from "node:fs";
import { join } from "node:path";

export interface Python {
  /** Such as "3.13.0". */
  readonly version: string;
  /** Folder of the installation; its bin/ holds python3. */
  readonly folder: string;
}

/** A Python ≥ 3.8 of each minor version on this machine: the system's own, and those of pyenv. */
export function findPythons(): Python[] {
  const pyenv = join(process.env["PYENV_ROOT"] ?? "/root/.pyenv", "versions");
  const byMinor = new Map<string, Python>();
  for (const python of ["/usr", ...subfolders(pyenv)].flatMap(describe)) {
    const minor = python.version.replace(/\.[0-9]+$/, "");
    if (!byMinor.has(minor)) byMinor.set(minor, python);
  }
  if (byMinor.size === 0) {
    throw new Error("no python3 of version 3.8 or later: apt-get install python3");
  }
  return [...byMinor.values()];
}

function describe(folder: string): Python[] {
  const question =
    "import sys; print('%d.%d.%d' % sys.version_info[:3] * (sys.version_info >= (3, 8)))";
  try {
    const options = { encoding: "utf8", stdio: "pipe" } as const;
    const version = execFileSync(join(folder, "bin/python3"), ["-c", question], options).trim();
    return version === "" ? [] : [{ version, folder }];
  } catch {
    return [];
  }
}

function subfolders(folder: string): string[] {
  try {
    return readdirSync(folder).map((name) => join(folder, name));
  } catch {
    return [];
  }
}
