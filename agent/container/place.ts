import { readFileSync, readlinkSync } from "node:fs";
import { hostname } from "node:os";

/**
 * The boot and the network namespace of this process. Within one place agents see each other's
 * sockets, see health/alive.ts; two places may still share an engine or a spool folder.
 */
export const ownPlace: string = readPlace();

function readPlace(): string {
  try {
    const boot = readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
    return `${boot} ${readlinkSync("/proc/self/ns/net")}`;
  } catch {
    return hostname();
  }
}
