import type Docker from "dockerode";
import type { PodmanInfo } from "./engine-info.ts";

interface Mounted {
  readonly HostConfig: object;
}

interface Settings {
  readonly ReadonlyRootfs?: boolean;
  readonly Tmpfs?: Readonly<Record<string, string>>;
}

/**
 * The profile without Podman's additions to read-only containers: a world-writable /var/tmp, and
 * with Podman 5 a /run/lock, of unlimited size.
 */
export function forPodman<T extends Mounted>(profile: T): T {
  const HostConfig: Settings = profile.HostConfig;
  if (!HostConfig.ReadonlyRootfs) return profile;
  const closed = "ro,nosuid,nodev,noexec";
  const Tmpfs = { ...HostConfig.Tmpfs, "/var/tmp": closed, "/run/lock": closed };
  return { ...profile, HostConfig: { ...HostConfig, Tmpfs } };
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
