import type Docker from "dockerode";
import type { PodmanInfo } from "./engine-info.ts";

interface Mounted {
  readonly HostConfig: object;
}

interface Settings {
  readonly ReadonlyRootfs?: boolean;
  readonly Tmpfs?: Readonly<Record<string, string>>;
  readonly SecurityOpt?: readonly string[];
  readonly MaskedPaths?: readonly string[];
}

/**
 * The profile in Podman's terms. Podman adds mounts of unlimited size to read-only containers: a
 * world-writable /var/tmp, and with Podman 5 a /run/lock. It ignores an empty list of masked paths.
 */
export function forPodman<T extends Mounted>(profile: T): T {
  const HostConfig: Settings = profile.HostConfig;
  const { ReadonlyRootfs, Tmpfs, SecurityOpt = [], MaskedPaths } = HostConfig;
  const closed = "ro,nosuid,nodev,noexec";
  return {
    ...profile,
    HostConfig: {
      ...HostConfig,
      ...(ReadonlyRootfs && { Tmpfs: { ...Tmpfs, "/var/tmp": closed, "/run/lock": closed } }),
      ...(MaskedPaths?.length === 0 && { SecurityOpt: [...SecurityOpt, "unmask=ALL"] }),
    },
  };
}

/** Reads Podman's own info; every Podman from 4.0 on answers at this address. */
export function readPodmanInfo(docker: Docker, abortSignal: AbortSignal): Promise<PodmanInfo> {
  return new Promise((resolve, reject) => {
    const statusCodes = { 200: true, 500: "server error" };
    const request = { path: "/v4.0.0/libpod/info", method: "GET", statusCodes, abortSignal };
    docker.modem.dial(request, (error, info) => {
      if (error) reject(error);
      else resolve(info as PodmanInfo);
    });
  });
}
