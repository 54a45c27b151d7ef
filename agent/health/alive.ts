import { once } from "node:events";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ownPlace } from "../container/place.ts";

/**
 * A socket per agent process, named after its id. The kernel closes it however the process ends, so
 * that whoever finds an agent's containers or files can tell whether that agent still lives. Only
 * processes in the same network namespace see it.
 */
function socketOf(agentId: string): string {
  const name = `airlock-agent-${agentId}`;
  // Linux has names outside the file system, which leave nothing behind.
  return process.platform === "linux" ? `\0${name}` : join(tmpdir(), `${name}.sock`);
}

/** Shows that this process is the agent `agentId`, until disposed of. */
export async function showAlive(agentId: string): Promise<Disposable> {
  const server = createServer((socket) => socket.destroy()).listen(socketOf(agentId));
  await once(server, "listening");
  server.unref();
  return { [Symbol.dispose]: () => server.close() };
}

/** Whether the process of the agent `agentId` lives; null where that cannot be seen from here. */
export async function isAlive(agentId: string, place: string): Promise<boolean | null> {
  if (await answers(agentId)) return true;
  return place === ownPlace ? false : null;
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
