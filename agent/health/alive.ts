import { once } from "node:events";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { hostScope } from "../engine/host-scope.ts";

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
