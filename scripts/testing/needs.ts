import { beforeEach } from "vitest";
import { type ToolName, tools } from "../setup/tools.ts";

declare module "vitest" {
  interface TaskMeta {
    /** Why this machine cannot run it. */
    cannot?: string;
  }
}

/** Vitest's options of a test or suite. */
export type Needs = { skip?: true; meta?: { cannot: string } };

/**
 * Options for a test or suite that needs these of the machine: `describe("…", needs("root"), …)`.
 * Where one is missing the rows are skipped, `npm test` lists them with the reason, and fails under CI.
 */
export function needs(...names: ("root" | ToolName)[]): Needs {
  const missing = reasonOf(names);
  return missing === undefined ? {} : cannot(missing);
}

/** The same for all rows of a file, or of the suite that it is called in. */
export function needsThroughout(...names: ("root" | ToolName)[]): void {
  const missing = reasonOf(names);
  if (missing !== undefined) beforeEach(({ skip }) => skip(missing));
}

function reasonOf(names: readonly ("root" | ToolName)[]): string | undefined {
  const missing = names.flatMap((name) => (isThere(name) ? [] : [reason(name)]));
  return missing.length === 0 ? undefined : missing.join("; ");
}

/** The same for what a test found out itself. */
export function cannot(reason: string): Needs {
  return { skip: true, meta: { cannot: reason } };
}

function isThere(name: "root" | ToolName): boolean {
  return name === "root" ? process.getuid?.() === 0 : tools[name].isThere();
}

function reason(name: "root" | ToolName): string {
  if (name === "root") return "only root may do this";
  const { packages } = tools[name];
  const remedy =
    packages.length > 0
      ? `sudo apt-get install ${packages.join(" ")}`
      : "run this as root on Debian";
  return `${name} is missing: ${remedy}`;
}
