import { execFileSync } from "node:child_process";
import { globSync } from "node:fs";
import { join } from "node:path";

export interface Python {
  /** Such as "3.13.0". */
  readonly version: string;
  /** Folder of the installation; its bin/ holds python3. */
  readonly folder: string;
}

/** The Pythons that the documents promise; the lab has each of them. Set-up builds those that are missing. */
export const promisedPythons = ["3.9", "3.11", "3.13"] as const;

/** Where set-up puts a Debian with its Python, for a version that this machine does not have. */
export const debianOf = (minor: string): string => `/var/cache/airlock/python-${minor}`;

/** The Python of this minor version: the system's, one of pyenv, or one in a Debian that set-up made. */
export function findPython(minor: string): Python | undefined {
  return places(minor)
    .flatMap(describe)
    .find(({ version }) => version.startsWith(`${minor}.`));
}

/** The system's Python, with which tests run a supervisor without an engine. */
export function hostPython(): Python {
  const [found] = describe("/usr");
  if (found === undefined) throw new Error("no /usr/bin/python3: apt-get install python3");
  return found;
}

function places(minor: string): string[] {
  const pyenv = process.env["PYENV_ROOT"] ?? "/root/.pyenv";
  const versions = globSync(join(pyenv, "versions", `${minor}.*`));
  return ["/usr", ...versions, join(debianOf(minor), "usr")];
}

function describe(folder: string): Python[] {
  const question = "import sys; print('%d.%d.%d' % sys.version_info[:3])";
  const [command = "", ...args] = interpreterIn(folder);
  try {
    const options = { encoding: "utf8", stdio: "pipe" } as const;
    const version = execFileSync(command, [...args, "-c", question], options).trim();
    return [{ version, folder }];
  } catch {
    return [];
  }
}

/** How to start it on this machine. One in a Debian tree that set-up made needs that tree's loader. */
export function startsHere({ folder }: Python): { args: string[]; env: Record<string, string> } {
  if (!isInDebian(folder)) return { args: [join(folder, "bin/python3")], env: {} };
  const libraries = globSync(join(folder, "lib/*-linux-gnu")).join(":");
  const [loader = ""] = globSync(join(folder, "lib/*-linux-gnu/ld-linux-*"));
  const args = [loader, "--library-path", libraries, join(folder, "bin/python3")];
  return { args, env: { PYTHONHOME: folder } };
}

const isInDebian = (folder: string): boolean => folder.startsWith(debianOf(""));

/** A Debian's Python needs the libraries of its own root. */
function interpreterIn(folder: string): string[] {
  return isInDebian(folder)
    ? ["/usr/sbin/chroot", join(folder, ".."), "/usr/bin/python3"]
    : [join(folder, "bin/python3")];
}
