import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import type { DockerdPlace } from "../setup/dockerd-place.ts";
import { readPidFile, readProcess } from "../setup/processes.ts";
import { startDockerd } from "../setup/start-dockerd.ts";

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

export function makePrivateDockerd(): PrivateDockerd {
  const dir = mkdtempSync("/var/tmp/airlock-dockerd-");
  const place = placeIn(dir);
  writeFileSync(`${dir}/daemon.json`, "{}");

  async function end(signal: NodeJS.Signals): Promise<void> {
    const pid = readPidFile(place.pidFile);
    if (pid === undefined || readProcess(pid)?.name !== "dockerd") return;
    process.kill(pid, signal);
    while (readProcess(pid)) await sleep(20);
  }

  return {
    dir,
    place,
    host: `unix://${place.socket}`,
    start: () => startDockerd(place),
    end,
    traces: () => [...processesOf(dir), ...mountsIn(dir)],
    [Symbol.asyncDispose]: async () => {
      await end("SIGTERM");
      // dockerd mounts its data folder onto itself and leaves that behind.
      for (const mount of mountsIn(dir)) execFileSync("umount", [mount]);
      rmSync(dir, { recursive: true });
    },
  };
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

function processesOf(dir: string): string[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map((pid) => readProcess(Number(pid))?.args.join(" ") ?? "")
    .filter((command) => command.includes(dir));
}

/** The innermost first. */
function mountsIn(dir: string): string[] {
  return readFileSync("/proc/mounts", "utf8")
    .split("\n")
    .map((line) => line.split(" ")[1] ?? "")
    .filter((path) => path.startsWith(`${dir}/`))
    .toReversed();
}
