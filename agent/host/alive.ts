import { once } from "node:events";
import { readFileSync, readlinkSync } from "node:fs";
import { connect, createServer } from "node:net";
import { hostname, tmpdir } from "node:os";
import { join } from "node:path";

/**
 * Each agent process listens on a socket named after its id. The kernel closes it however the
 * process ends, so another agent that finds containers or files can tell whether their agent is
 * alive. Only processes in the same network namespace see the socket.
 */
function socketOf(agentId: string): string {
  const name = `airlock-agent-${agentId}`;
  // On Linux the name is abstract (outside the file system), so nothing is left behind.
  return process.platform === "linux" ? `\0${name}` : join(tmpdir(), `${name}.sock`);
}

/** Shows that this process is the agent `agentId`, until disposed. */
export async function showAlive(agentId: string): Promise<Disposable> {
  const server = createServer((socket) => socket.destroy()).listen(socketOf(agentId));
  await once(server, "listening");
  server.unref();
  return { [Symbol.dispose]: () => server.close() };
}

/** Whether the agent `agentId` is alive; null if that cannot be seen from here. */
export async function isAlive(agentId: string, scope: string): Promise<boolean | null> {
  if (await answers(agentId)) return true;
  return scope === hostScope ? false : null;
}

async function answers(agentId: string): Promise<boolean> {
  const socket = connect(socketOf(agentId));
  try {
    await once(socket, "connect");
    return true;
  } catch {
    return false;
  } finally {
    socket.destroy();
  }
}

/**
 * Where this process runs: its boot id and network namespace. Agents with the same host scope see each
 * other's sockets. Agents with different ones may still share an engine or a spool folder.
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
