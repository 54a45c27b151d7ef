import { existsSync } from "node:fs";
import { OperatorError } from "../../command/operator-error.ts";
import { registerRunsc } from "./daemon-json.ts";
import { MACHINE_DOCKERD } from "./dockerd-place.ts";
import { runningDockerd } from "./dockerd-leftovers.ts";
import { DEFAULT_HOST } from "./engine-hosts.ts";
import { findEngine } from "./find-engine.ts";
import { hasCommand, installEngine } from "./install-engine.ts";
import { type Machine, noEngineAdvice } from "./no-engine.ts";
import { runStep } from "../run-step.ts";
import { withSetupLock } from "../setup-lock.ts";
import { startDockerd } from "./start-dockerd.ts";

export type Engine = {
  /** Its address, such as `unix:///var/run/docker.sock`. */
  dockerHost: string;
  /** Command that stops the engine that this call started. */
  stopCommand?: string;
};

/** Returns an engine that answers; installs and starts one if there is none. */
export async function ensureEngine(dockerHost: string | undefined): Promise<Engine> {
  const search = await findEngine(dockerHost);
  if (search.found) return { dockerHost: search.found };
  const advice = noEngineAdvice(search, thisMachine());
  if (advice) throw new OperatorError(advice);

  return withSetupLock(async () => {
    const again = await findEngine(dockerHost);
    return again.found ? { dockerHost: again.found } : installAndStart();
  });
}

async function installAndStart(): Promise<Engine> {
  if (!hasCommand("dockerd")) await installEngine();
  const registered = hasCommand("runsc") && registerRunsc();
  // The package's scripts may have started dockerd already; on SIGHUP it reloads its runtimes.
  const running = runningDockerd(MACHINE_DOCKERD);
  if (running && registered) process.kill(running.pid, "SIGHUP");

  if (existsSync("/run/systemd/system")) {
    await startService();
    return { dockerHost: DEFAULT_HOST, stopCommand: "systemctl stop docker" };
  }
  const pid = await startDockerd(MACHINE_DOCKERD);
  return { dockerHost: DEFAULT_HOST, stopCommand: `kill ${pid}` };
}

async function startService(): Promise<void> {
  await runStep({
    title: "starting the docker service (journalctl -u docker tells more)",
    command: "systemctl",
    args: ["start", "docker"],
    logFile: MACHINE_DOCKERD.logFile,
  });
}

function thisMachine(): Machine {
  return {
    platform: process.platform,
    root: process.getuid?.() === 0,
    apt: hasCommand("apt-get"),
    podman: hasCommand("podman"),
  };
}
