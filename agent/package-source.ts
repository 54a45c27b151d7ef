import { readdir, stat } from "node:fs/promises";
import { join } from "node:path";
import { describeError } from "../shared/log-line.ts";
import { JobRefusal } from "./job-refusal.ts";

/** Where builds install packages from: `pip_index_url`, `pip_find_links`, `pip_ca_file`. */
export type PipConfig = {
  readonly indexUrl: string | undefined;
  readonly findLinks: string | undefined;
  readonly caFile: string | undefined;
};

/** A file of the agent's host that goes along into the build. */
export type BuildFile = {
  readonly name: string;
  readonly path: string;
  readonly sizeBytes: number;
};

export type PackageSource = {
  readonly files: readonly BuildFile[];
  /** Settings of pip, with the files where `folder` will hold them. */
  readonly pipEnv: Readonly<Record<string, string>>;
  /** Whether pip asks an index. */
  readonly needsNetwork: boolean;
};

/** Where a build finds its files. */
const FOLDER = "/tmp/airlock-build";

const always = {
  // Debian's Python belongs to apt (PEP 668); in an image of one purpose nothing else uses it.
  PIP_BREAK_SYSTEM_PACKAGES: "1",
  PIP_ROOT_USER_ACTION: "ignore",
  PIP_DISABLE_PIP_VERSION_CHECK: "1",
  PIP_NO_CACHE_DIR: "1",
  PIP_NO_INPUT: "1",
  PIP_PROGRESS_BAR: "off",
};

/** @throws JobRefusal where a configured file or folder cannot be read. */
export async function readPackageSource(config: PipConfig): Promise<PackageSource> {
  const { indexUrl, findLinks, caFile } = config;
  const wheels = findLinks === undefined ? [] : await listPackages(findLinks);
  const ca = caFile === undefined ? [] : [await describeFile("pip_ca_file", caFile, "ca.pem")];
  const needsNetwork = findLinks === undefined || indexUrl !== undefined;
  return {
    files: [...wheels, ...ca],
    pipEnv: {
      ...always,
      ...(indexUrl !== undefined && indexEnv(indexUrl)),
      ...(findLinks !== undefined && { PIP_FIND_LINKS: `${FOLDER}/packages` }),
      ...(caFile !== undefined && { PIP_CERT: `${FOLDER}/ca.pem` }),
      ...(!needsNetwork && { PIP_NO_INDEX: "1" }),
    },
    needsNetwork,
  };
}

/** An index without TLS is left out by pip, unless it is told that its operator wants it. */
function indexEnv(indexUrl: string): Record<string, string> {
  const { protocol, host } = new URL(indexUrl);
  return { PIP_INDEX_URL: indexUrl, ...(protocol === "http:" && { PIP_TRUSTED_HOST: host }) };
}

async function listPackages(folder: string): Promise<BuildFile[]> {
  const names = await readdir(folder).catch((error: unknown) => {
    throw unreadable("pip_find_links", folder, error);
  });
  const packages = names.filter((name) => /\.(whl|zip|tar\.gz)$/.test(name)).sort();
  return Promise.all(
    packages.map((name) => describeFile("pip_find_links", join(folder, name), `packages/${name}`)),
  );
}

async function describeFile(key: string, path: string, name: string): Promise<BuildFile> {
  const { size } = await stat(path).catch((error: unknown) => {
    throw unreadable(key, path, error);
  });
  return { name, path, sizeBytes: size };
}

function unreadable(key: string, path: string, cause: unknown): JobRefusal {
  const reason = describeError(cause);
  return new JobRefusal("config_error", `${key} of the agent cannot be read: ${path}: ${reason}`, {
    cause,
  });
}
