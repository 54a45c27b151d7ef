import { readFileSync } from "node:fs";
import { join } from "node:path";

/** Where the engine is if nobody says otherwise. */
export const defaultEngine = "unix:///var/run/docker.sock";
/** Root's socket; other users cannot see whether it exists. */
export const rootPodman = "unix:///run/podman/podman.sock";

/** Addresses of the sockets of Docker and Podman, in the order to try them. */
export function engineSockets(env: NodeJS.ProcessEnv): string[] {
  const runtimeDir = env["XDG_RUNTIME_DIR"];
  const home = env["HOME"];
  return [
    defaultEngine,
    ...(runtimeDir ? [`unix://${runtimeDir}/docker.sock`] : []),
    ...(home ? [`unix://${home}/.docker/run/docker.sock`] : []),
    ...(runtimeDir ? [`unix://${runtimeDir}/podman/podman.sock`] : []),
    rootPodman,
  ];
}

/**
 * Options with which dockerode connects to the engine at `unix://path` or `tcp://host:port`;
 * DOCKER_TLS_VERIFY and DOCKER_CERT_PATH set TLS.
 */
export function engineConnection(host: string) {
  // The empty host keeps dockerode from preferring DOCKER_HOST.
  if (host.startsWith("unix://")) return { socketPath: socketOf(host), host: "" };
  const { hostname, port } = new URL(host.includes("://") ? host : `tcp://${host}`);
  const certificates = process.env["DOCKER_CERT_PATH"];
  if (!process.env["DOCKER_TLS_VERIFY"] || !certificates) {
    return { protocol: "http" as const, host: hostname, port: port || 2375 };
  }
  const read = (name: string): Buffer => readFileSync(join(certificates, name));
  return {
    protocol: "https" as const,
    host: hostname,
    port: port || 2376,
    ca: read("ca.pem"),
    cert: read("cert.pem"),
    key: read("key.pem"),
  };
}

/** The path of a socket's address. */
export const socketOf = (address: string): string => address.slice("unix://".length);
