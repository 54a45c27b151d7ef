import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { runningDockerd } from "../setup/engine/dockerd-leftovers.ts";
import type { DockerdPlace } from "../setup/engine/dockerd-place.ts";
import { type Process, readProcess } from "../setup/engine/processes.ts";
import { startDockerd } from "../setup/engine/start-dockerd.ts";
import { mountsIn } from "./mounts-in.ts";
import { waitUntil } from "../../shared/testing/wait-until.ts";

/** A dockerd of a test's own: its files lie in one folder, and it has a network of its own. */
export type PrivateDockerd = AsyncDisposable & {
  readonly dir: string;
  readonly place: DockerdPlace;
  readonly host: string;
  readonly start: () => Promise<number>;
  /** Ends it, where it runs; resolves once it is gone. */
  readonly end: (signal: NodeJS.Signals) => Promise<void>;
  /** What there is of it: command lines of its processes, and its mounts. */
  readonly traces: () => string[];
};

/** In a new folder, or in that of one which a killed process left. */
export function makePrivateDockerd(
  dir: string = mkdtempSync("/var/tmp/airlock-dockerd-"),
): PrivateDockerd {
  const place = placeIn(dir);
  writeFileSync(`${dir}/daemon.json`, "{}");

  async function end(signal: NodeJS.Signals): Promise<void> {
    const running = runningDockerd(place);
    if (!running) return;
    process.kill(running.pid, signal);
    await waitUntil(`dockerd ${running.pid} ends`, () => !readProcess(running.pid));
  }

  return {
    dir,
    place,
    host: `unix://${place.socket}`,
    start: () => startDockerd(place),
    end,
    traces: () => [...processesOf(dir).map(({ args }) => args.join(" ")), ...mountsIn(dir)],
    [Symbol.asyncDispose]: async () => {
      // A killed one leaves containers that run; another one ends them.
      if (!runningDockerd(place) && processesOf(dir).length > 0) await startDockerd(place);
      await end("SIGTERM");
      await endShims(dir);
      // dockerd mounts its data folder onto itself and leaves that behind.
      for (const mount of mountsIn(dir)) execFileSync("umount", [mount]);
      rmSync(dir, { recursive: true });
    },
  };
}

/** A command that runs what follows it in the network of a dockerd that runs. */
export function inNetworkOf({ place }: Pick<PrivateDockerd, "place">): readonly string[] {
  const pid = runningDockerd(place)?.pid;
  if (pid === undefined) throw new Error("it does not run");
  return ["nsenter", `--net=/proc/${pid}/ns/net`];
}

function placeIn(dir: string): DockerdPlace {
  const place = {
    socket: `${dir}/docker.sock`,
    pidFile: `${dir}/docker.pid`,
    execRoot: `${dir}/exec`,
    logFile: `${dir}/dockerd.log`,
  };
  const args = [
    // Even a dockerd without a bridge would remove the docker0 that the machine's own uses.
    "--net",
    "dockerd",
    `--host=unix://${place.socket}`,
    `--pidfile=${place.pidFile}`,
    `--exec-root=${place.execRoot}`,
    `--data-root=${dir}/data`,
    `--config-file=${dir}/daemon.json`,
    "--bridge=none",
    "--iptables=false",
  ];
  return { ...place, command: "unshare", args };
}

function processesOf(dir: string): Process[] {
  return processes().filter(({ args }) => args.join(" ").includes(dir));
}

function processes(): Process[] {
  return readdirSync("/proc").flatMap((pid) => readProcess(Number(pid)) ?? []);
}

/** A dockerd that is killed while it starts a container never looks after its shim again. */
async function endShims(dir: string): Promise<void> {
  for (let own = processesOf(dir); own.length > 0; own = processesOf(dir)) {
    const shims = own
      .filter(({ name }) => name.startsWith("containerd-shim"))
      .map(({ pid }) => pid);
    const inside = processes().filter(({ parentPid }) => shims.includes(parentPid));
    for (const pid of [...inside.map((process) => process.pid), ...shims]) kill(pid);
    await sleep(20);
  }
}

function kill(pid: number): void {
  if (readProcess(pid)) process.kill(pid, "SIGKILL");
}
