import { IN_GUEST } from "./machine/project-disk.ts";
import { type Guest, quote } from "./machine/guest.ts";

/**
 * gVisor as `npm run setup` registers it: Debian's runsc cannot build its network on recent kernels. A guest without runsc
 * has the entry too; only a container that asks for it fails.
 */
const RUNTIMES = { runsc: { path: "/usr/bin/runsc", runtimeArgs: ["--network=none"] } };

/** Starts the guest's Docker with this daemon.json, with the base image loaded. */
export async function startDocker(guest: Guest, config: object = {}): Promise<void> {
  await guest.run(`# start docker
mkdir -p /etc/docker
echo ${quote(JSON.stringify({ runtimes: RUNTIMES, ...config }))} >/etc/docker/daemon.json
systemctl reset-failed docker 2>/dev/null || true
systemctl restart docker
docker images --quiet | grep -q . || docker load --quiet --input ${IN_GUEST.baseImage}`);
}

export async function stopDocker(guest: Guest): Promise<void> {
  await guest.run("systemctl stop docker.socket docker");
}

/** Ids of all containers that Docker knows. */
export function containersLeft(guest: Guest): Promise<string> {
  return guest.run("docker ps --all --quiet");
}
