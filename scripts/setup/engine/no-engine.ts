import { DEFAULT_HOST, ROOT_PODMAN } from "./engine-hosts.ts";
import type { EngineSearch } from "./find-engine.ts";

export type Machine = {
  platform: NodeJS.Platform;
  root: boolean;
  apt: boolean;
  /** Whether Podman is installed. */
  podman: boolean;
};

/**
 * Explains in two lines what is wrong and what to do if no engine answers and set-up may not
 * install one; undefined if it may.
 */
export function noEngineAdvice(search: EngineSearch, machine: Machine): string | undefined {
  const tried = search.pings.map((ping) => `${ping.host}: ${ping.reason}`).join("; ");
  if (search.setBy) {
    return `${search.setBy} names an engine that does not answer (${tried}).\nStart that engine, or unset ${search.setBy} to use one on this machine.`;
  }
  const denied = search.pings.find(({ host, state }) => state === "denied" && host !== ROOT_PODMAN);
  if (denied) {
    return `you have no permission on ${denied.host}.\nEither join its group (sudo usermod -aG docker "$USER", then log in again) or run this with sudo.`;
  }
  if (machine.platform === "linux" && machine.root && machine.apt) return undefined;
  return `no container engine answers (${tried}).\n${remedy(search, machine)}`;
}

function remedy(search: EngineSearch, machine: Machine): string {
  if (machine.platform !== "linux") {
    return "Start Docker Desktop, Colima or Podman (set DOCKER_HOST if its socket is elsewhere), then run this again.";
  }
  const silent = search.pings.some((ping) => ping.host === DEFAULT_HOST && ping.state === "silent");
  const sudo = machine.root ? "" : "sudo ";
  if (silent) return `Start Docker (${sudo}systemctl start docker), then run this again.`;
  if (machine.podman && !machine.root) {
    return "Start Podman's socket (systemctl --user enable --now podman.socket), then run this again.";
  }
  if (!machine.apt) {
    return "Install Docker or Podman with this system's package manager, then run this again.";
  }
  return 'Run this as root, which installs one, or install it (sudo apt-get install docker.io && sudo usermod -aG docker "$USER"), log in again and run this again.';
}
