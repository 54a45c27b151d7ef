import { existsSync } from "node:fs";

const DEFAULT_SOCKET = "/var/run/docker.sock";

/**
 * The address of the engine: `configured`, else DOCKER_HOST, else the first socket of Docker or
 * Podman that exists.
 */
export function engineHost(
  configured: string | undefined,
  env: NodeJS.ProcessEnv,
  exists: (path: string) => boolean = existsSync,
): string {
  const given = configured || env["DOCKER_HOST"];
  if (given) return given;
  const runtimeDir = env["XDG_RUNTIME_DIR"];
  const home = env["HOME"];
  const sockets = [
    DEFAULT_SOCKET,
    ...(runtimeDir ? [`${runtimeDir}/docker.sock`] : []),
    ...(home ? [`${home}/.docker/run/docker.sock`] : []),
    ...(runtimeDir ? [`${runtimeDir}/podman/podman.sock`] : []),
    "/run/podman/podman.sock",
  ];
  return `unix://${sockets.find(exists) ?? DEFAULT_SOCKET}`;
}
