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

/** Where pip gets packages for a job. */
export type RuntimeSource = {
  readonly pipEnv: Readonly<Record<string, string>>;
  readonly reach: Reach;
  /** Certificates (PEM) that pip trusts; null if none are configured. */
  readonly certificates: Uint8Array | null;
  /** Changes when packages come from another place. */
  readonly fingerprint: string;
};

/** The path of the certificates; python/packages.py creates the folder. */
export const certificatesName = ".pip/ca.pem";

/** @throws JobRefusal if a configured file or folder cannot be read. */
export async function readRuntimeSource(config: PipConfig): Promise<RuntimeSource> {
  const { indexUrl, findLinks, caFile } = config;
  const files = await listPackages(findLinks);
  const certificates = caFile === undefined ? null : await readCertificates(caFile);
  const index = indexUrl === undefined ? {} : indexEnv(indexUrl);
  const trusted = [index["PIP_TRUSTED_HOST"] ?? [], files.length > 0 ? new URL(filesUrl).host : []];
  const pipEnv = {
    ...pipAlways,
    // Few retries: a refused host stays refused, and the start-up time is short.
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
