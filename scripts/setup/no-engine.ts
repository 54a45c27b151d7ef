import { DEFAULT_HOST } from "./engine-hosts.ts";
import type { EngineSearch } from "./find-engine.ts";

export type Machine = { platform: NodeJS.Platform; root: boolean; apt: boolean };

/** What to do where no engine answers and set-up may not install one; undefined where it may. */
export function noEngineAdvice(search: EngineSearch, machine: Machine): string | undefined {
  const tried = search.pings.map((ping) => `  ${ping.host}: ${ping.reason}`).join("\n");
  if (search.setBy) {
    return `${search.setBy} names an engine that does not answer:\n${tried}\nStart that engine, or unset ${search.setBy} to use one on this machine.`;
  }
  const denied = search.pings.find((ping) => ping.state === "denied");
  if (denied) {
    return `you have no permission on ${denied.host}.\nEither join its group (sudo usermod -aG docker "$USER", then log in again) or run this with sudo.`;
  }
  if (machine.platform === "linux" && machine.root && machine.apt) return undefined;
  return `no container engine answers:\n${tried}\n${remedy(search, machine)}\nThen run this again.`;
}

function remedy(search: EngineSearch, machine: Machine): string {
  if (machine.platform !== "linux") {
    return "Start Docker Desktop, Colima or Podman; set DOCKER_HOST if its socket is elsewhere.";
  }
  const silent = search.pings.some((ping) => ping.host === DEFAULT_HOST && ping.state === "silent");
  const sudo = machine.root ? "" : "sudo ";
  if (silent) return `Docker is installed but not running: ${sudo}systemctl start docker`;
  if (!machine.apt) return "Install Docker or Podman with this system's package manager.";
  return 'Run this as root and it installs one, or do it yourself:\n  sudo apt-get install docker.io && sudo usermod -aG docker "$USER"';
}
