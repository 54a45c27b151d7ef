import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import { filesUrl, type Reach } from "./proxy.ts";
import {
  asksIndex,
  indexEnv,
  listPackages,
  pipAlways,
  reachableHosts,
  type PipConfig,
  unreadable,
} from "./source.ts";

/** Where pip finds what it needs while it installs packages for a job. */
export type RuntimeSource = {
  readonly pipEnv: Readonly<Record<string, string>>;
  readonly reach: Reach;
  /** Certificates (PEM) that pip trusts, where the operator gave some. */
  readonly certificates: Uint8Array | null;
  /** The same for as long as packages come from the same place. */
  readonly fingerprint: string;
};

/** Where pip finds the certificates; inside/packages.py makes the folder. */
export const certificatesName = ".pip/ca.pem";

/** @throws JobRefusal where a configured file or folder cannot be read. */
export async function readRuntimeSource(config: PipConfig): Promise<RuntimeSource> {
  const { indexUrl, findLinks, caFile } = config;
  const files = await listPackages(findLinks);
  const certificates = caFile === undefined ? null : await readCertificates(caFile);
  const index = indexUrl === undefined ? {} : indexEnv(indexUrl);
  const trusted = [index["PIP_TRUSTED_HOST"] ?? [], files.length > 0 ? new URL(filesUrl).host : []];
  const pipEnv = {
    ...pipAlways,
    // What is refused stays refused, and the start-up's time is short.
    PIP_RETRIES: "1",
    ...index,
    ...(trusted.flat().length > 0 && { PIP_TRUSTED_HOST: trusted.flat().join(" ") }),
    ...(findLinks !== undefined && { PIP_FIND_LINKS: filesUrl }),
    ...(certificates !== null && { PIP_CERT: `/packages/${certificatesName}` }),
    ...(!asksIndex(config) && { PIP_NO_INDEX: "1" }),
  };
  const offered = files.map(({ name, sizeBytes }) => [name, sizeBytes]);
  const fingerprint = createHash("sha256")
    .update(JSON.stringify([pipEnv, offered]))
    .digest("hex");
  return {
    pipEnv,
    reach: { ...reachableHosts(config), files },
    certificates,
    fingerprint,
  };
}

async function readCertificates(path: string): Promise<Uint8Array> {
  return readFile(path).catch((error: unknown) => {
    throw unreadable("pip_ca_file", path, error);
  });
}
