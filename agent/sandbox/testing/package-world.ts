import { createPackageProxy } from "../../packages/proxy.ts";
import { readRuntimeSource } from "../../packages/runtime-source.ts";
import type { PipSource } from "../package-request.ts";
import { type IndexOptions, type PackageIndex, startIndex } from "./package-index.ts";
import { pipConfig } from "../../testing/pip-config.ts";

/** Servers to close after each test. */
export const open: { close(): unknown }[] = [];
/** What could not be reached. */
export const problems: string[] = [];

/** Resets everything for the next test. */
export function closeAll(): void {
  for (const one of open.splice(0)) one.close();
  problems.length = 0;
}

export const wheel = (name: string, source = "", more: object = {}) => ({
  name,
  version: "1.0",
  source,
  ...more,
});

/** An index of packages on this machine, until `closeAll`. */
export async function indexOf(options: Partial<IndexOptions>): Promise<PackageIndex> {
  const index = await startIndex({ wheels: [], ...options });
  open.push(index);
  return index;
}

/** The order that makes pip install from an index. */
export async function pipFrom(
  index: PackageIndex,
  more: Partial<PipSource> = {},
): Promise<PipSource> {
  const { pipEnv, reach } = await readRuntimeSource(pipConfig({ indexUrl: index.url }));
  return {
    pipEnv,
    files: {},
    serve: createPackageProxy(reach, (words) => problems.push(words)),
    keep: null,
    maxBytes: null,
    ...more,
  };
}

/** The message of pip, or of whatever else failed. */
export const failure = (run: Promise<unknown>): Promise<string> =>
  run.then(
    () => "",
    (error: Error) => `${error.name}: ${error.message}`,
  );
