import { readFileSync, readlinkSync } from "node:fs";
import { hostname } from "node:os";

/**
 * Where this process runs: its boot id and network namespace. Agents with the same host scope see each
 * other's sockets (health/alive.ts). Agents with different ones may still share an engine or a spool folder.
 */
export const hostScope: string = readHostScope();

function readHostScope(): string {
  try {
    const boot = readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
    return `${boot} ${readlinkSync("/proc/self/ns/net")}`;
  } catch {
    return hostname();
  }
}
