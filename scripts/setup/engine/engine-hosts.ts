export type HostSearch = {
  /** Engine addresses in the order to try them, such as `unix:///var/run/docker.sock`. */
  hosts: string[];
  /** The setting that names the engine; then no other engine is tried. */
  setBy?: "docker_host" | "DOCKER_HOST";
};

export const DEFAULT_HOST = "unix:///var/run/docker.sock";
/** Root's socket; other users cannot see whether it exists. */
export const ROOT_PODMAN = "unix:///run/podman/podman.sock";

/** Where to look for an engine: the configured address, else the sockets of Docker and Podman. */
export function engineHosts(dockerHost: string | undefined, env: NodeJS.ProcessEnv): HostSearch {
  if (dockerHost) return { hosts: [dockerHost], setBy: "docker_host" };
  if (env["DOCKER_HOST"]) return { hosts: [env["DOCKER_HOST"]], setBy: "DOCKER_HOST" };

  const runtimeDir = env["XDG_RUNTIME_DIR"];
  const home = env["HOME"];
  const hosts = [
    DEFAULT_HOST,
    ...(runtimeDir ? [`unix://${runtimeDir}/docker.sock`] : []),
    ...(home ? [`unix://${home}/.docker/run/docker.sock`] : []),
    ...(runtimeDir ? [`unix://${runtimeDir}/podman/podman.sock`] : []),
    ROOT_PODMAN,
  ];
  return { hosts };
}
