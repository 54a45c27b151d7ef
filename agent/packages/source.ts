import { readdir, stat } from "node:fs/promises";
import { join } from "node:path";
import { describeError } from "../../shared/log-line.ts";
import type { Hosts } from "./route.ts";
import { JobRefusal } from "../policy/refusal.ts";

/** The agent's keys `pip_…`: where packages come from. */
export type PipConfig = {
  readonly indexUrl: string | undefined;
  readonly findLinks: string | undefined;
  readonly caFile: string | undefined;
  /**
   * `host` or `host:port` of hosts that may be reached in addition to the index, public or private.
   */
  readonly hosts: readonly string[];
  readonly proxyUrl: string | undefined;
};

/** A file of the agent's host that pip needs. */
export type PackageFile = {
  readonly name: string;
  readonly path: string;
  readonly sizeBytes: number;
};

export type PackageSource = {
  readonly files: readonly PackageFile[];
  /** Settings of pip, with the paths of the files in `folder`. */
  readonly pipEnv: Readonly<Record<string, string>>;
  readonly hosts: Hosts;
};

/** Where a build finds its files. */
const FOLDER = "/tmp/airlock-build";

/** Settings of pip for every source of packages. */
export const pipAlways = {
  // On Debian only apt may install into the system's Python (PEP 668); in a single-purpose image
  // pip may.
  PIP_BREAK_SYSTEM_PACKAGES: "1",
  PIP_ROOT_USER_ACTION: "ignore",
  PIP_DISABLE_PIP_VERSION_CHECK: "1",
  PIP_NO_CACHE_DIR: "1",
  PIP_NO_INPUT: "1",
  PIP_PROGRESS_BAR: "off",
};

/** @throws JobRefusal if a configured file or folder cannot be read. */
export async function readPackageSource(config: PipConfig): Promise<PackageSource> {
  const { indexUrl, findLinks, caFile } = config;
  const wheels = (await listPackages(findLinks)).map((file) => ({
    ...file,
    name: `packages/${file.name}`,
  }));
  const ca = caFile === undefined ? [] : [await describeFile("pip_ca_file", caFile, "ca.pem")];
  return {
    files: [...wheels, ...ca],
    pipEnv: {
      ...pipAlways,
      ...(indexUrl !== undefined && indexEnv(indexUrl)),
      ...(findLinks !== undefined && { PIP_FIND_LINKS: `${FOLDER}/packages` }),
      ...(caFile !== undefined && { PIP_CERT: `${FOLDER}/ca.pem` }),
      ...(!asksIndex(config) && { PIP_NO_INDEX: "1" }),
    },
    hosts: reachableHosts(config),
  };
}

/** The hosts that pip may reach through the agent; the container itself has no network. */
export function reachableHosts(config: PipConfig): Hosts {
  const { proxyUrl } = config;
  const proxy = proxyUrl === undefined ? null : new URL(proxyUrl);
  return { hosts: namedHosts(config), internet: asksIndex(config), proxy };
}

/** PyPI's hosts: its index, and its files. */
const pypi = ["pypi.org:443", "files.pythonhosted.org:443"];

function namedHosts(config: PipConfig): string[] {
  const { indexUrl, hosts } = config;
  const index = indexUrl === undefined ? [] : [placeOf(indexUrl)];
  // Through a proxy, only named hosts are allowed.
  const usual = asksIndex(config) && indexUrl === undefined && config.proxyUrl ? pypi : [];
  const further = hosts.flatMap((host) =>
    /:[0-9]+$/.test(host) ? [host] : [`${host}:80`, `${host}:443`],
  );
  return [...index, ...usual, ...further];
}

function placeOf(indexUrl: string): string {
  const { protocol, hostname, port } = new URL(indexUrl);
  return `${hostname}:${port || (protocol === "http:" ? 80 : 443)}`;
}

/**
 * Whether pip uses an index: PyPI unless another is configured; none if only files are configured.
 */
export function asksIndex({ indexUrl, findLinks }: PipConfig): boolean {
  return findLinks === undefined || indexUrl !== undefined;
}

/** pip ignores an index without TLS unless it is listed as trusted. */
export function indexEnv(indexUrl: string): Record<string, string> {
  const { protocol, host } = new URL(indexUrl);
  return { PIP_INDEX_URL: indexUrl, ...(protocol === "http:" && { PIP_TRUSTED_HOST: host }) };
}

/** The packages in the folder `pip_find_links`, by name. */
export async function listPackages(folder: string | undefined): Promise<PackageFile[]> {
  if (folder === undefined) return [];
  const names = await readdir(folder).catch((error: unknown) => {
    throw unreadable("pip_find_links", folder, error);
  });
  const packages = names.filter((name) => /\.(whl|zip|tar\.gz)$/.test(name)).sort();
  return Promise.all(
    packages.map((name) => describeFile("pip_find_links", join(folder, name), name)),
  );
}

async function describeFile(key: string, path: string, name: string): Promise<PackageFile> {
  const { size } = await stat(path).catch((error: unknown) => {
    throw unreadable(key, path, error);
  });
  return { name, path, sizeBytes: size };
}

export function unreadable(key: string, path: string, cause: unknown): JobRefusal {
  const reason = describeError(cause);
  return new JobRefusal("config_error", `${key} of the agent cannot be read: ${path}: ${reason}`, {
    cause,
  });
}
