import { rmSync } from "node:fs";
import { connect } from "node:net";
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { say } from "../../command/say.ts";
import type { DockerdPlace } from "./dockerd-place.ts";
import { type Process, readPidFile, readProcess } from "./processes.ts";

const CONTAINERD_GRACE_MS = 5000;
const SYSTEM_CONTAINERD_SOCKET = "/run/containerd/containerd.sock";

/** The dockerd of the pid file, if it is running. */
export function runningDockerd(place: DockerdPlace): Process | undefined {
  const pid = readPidFile(place.pidFile);
  const found = pid === undefined ? undefined : readProcess(pid);
  return found?.name === "dockerd" ? found : undefined;
}

/**
 * Removes files of a killed dockerd that would keep a new one from starting. Call it only when no
 * dockerd is running. dockerd trusts its pid files: it does not start if the pid belongs to any
 * other program.
 */
export async function clearLeftovers(place: DockerdPlace): Promise<void> {
  rmSync(place.pidFile, { force: true });
  await clearContainerd(place);
  await clearStaleSocket(SYSTEM_CONTAINERD_SOCKET);
}

/** Whether this process is the containerd that a dockerd of this place started and left behind. */
export function isOrphan(
  found: Process,
  place: DockerdPlace,
  parent: Process | undefined,
): boolean {
  const config = `${place.execRoot}/containerd/containerd.toml`;
  return found.name === "containerd" && found.args.includes(config) && parent?.name !== "dockerd";
}

async function clearContainerd(place: DockerdPlace): Promise<void> {
  const pidFile = `${place.execRoot}/containerd/containerd.pid`;
  const pid = readPidFile(pidFile);
  const found = pid === undefined ? undefined : readProcess(pid);
  if (found && isOrphan(found, place, readProcess(found.parentPid))) {
    say(`ending the containerd (pid ${found.pid}) that a killed dockerd left`);
    await end(found.pid);
  }
  rmSync(pidFile, { force: true });
}

async function end(pid: number): Promise<void> {
  process.kill(pid, "SIGTERM");
  const deadline = performance.now() + CONTAINERD_GRACE_MS;
  while (readProcess(pid)) {
    if (performance.now() > deadline) process.kill(pid, "SIGKILL");
    await sleep(50);
  }
}

/** If this socket exists, dockerd tries to use the containerd behind it. */
async function clearStaleSocket(path: string): Promise<void> {
  const socket = connect(path);
  try {
    await once(socket, "connect");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ECONNREFUSED") rmSync(path, { force: true });
  } finally {
    socket.destroy();
  }
}
