import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";

/** Names the folder of bundled programs. */
export const PROGRAMS = "TEST_PROGRAMS";

/** Names the folder of the worker's bundle, which one process of a test run makes. */
export const WORKER_BUNDLE = "TEST_WORKER_BUNDLE";

const root = join(import.meta.dirname, "../..");

/** What a source needs, as in scripts/run. */
export const sourceFlags = process.version < "v24" ? ["--import", "tsx"] : [];

/** The file that Node runs, and the flags that it needs for that. */
export type Program = { readonly entry: string; readonly flags: readonly string[] };

/**
 * A program of this repository, given as its source file: the bundle, where
 * scripts/test/global-set-up.ts has made one, else the source, as scripts/run starts it.
 */
export function programOf(source: string): Program {
  const folder = process.env[PROGRAMS];
  const entry = folder && join(folder, bundleOf(source));
  if (entry && existsSync(entry)) return { entry, flags: [] };
  return { entry: join(root, source), flags: sourceFlags };
}

/** Node's arguments that run a program. */
export function programArgs(source: string): string[] {
  const { entry, flags } = programOf(source);
  return [...flags, entry];
}

/** Runs a program as an operator would: its exit code and what it says. */
export function runProgram(
  source: string,
  args: readonly string[],
  env: Record<string, string>,
): Promise<{ code: number; said: string }> {
  const options = { env: { PATH: process.env["PATH"], ...env } };
  return new Promise((resolve) => {
    execFile(process.execPath, [...programArgs(source), ...args], options, (error, ...said) => {
      resolve({ code: error ? Number(error.code) : 0, said: said.join("") });
    });
  });
}

export function bundleOf(source: string): string {
  return source.replace(/\.ts$/, ".mjs");
}
