import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import type { DockerdPlace } from "./dockerd-place.ts";
import { pingEngine } from "./ping-engine.ts";
import { readPidFile, readProcess } from "./processes.ts";
import { startDockerd } from "./start-dockerd.ts";

/** A dockerd that lives in `dir` alone. */
function privateDockerd(dir: string): DockerdPlace {
  const place = {
    socket: `${dir}/docker.sock`,
    pidFile: `${dir}/docker.pid`,
    execRoot: `${dir}/exec`,
    logFile: `${dir}/dockerd.log`,
  };
  const args = [
    `--host=unix://${place.socket}`,
    `--pidfile=${place.pidFile}`,
    `--exec-root=${place.execRoot}`,
    `--data-root=${dir}/data`,
    `--config-file=${dir}/daemon.json`,
    "--bridge=none",
    "--iptables=false",
  ];
  return { ...place, args };
}

// Only root can run a dockerd; elsewhere set-up never starts one.
describe.skipIf(process.getuid?.() !== 0)("a dockerd of the test's own", () => {
  let dir: string;
  let place: DockerdPlace;
  let bystander: ChildProcess;

  beforeEach(() => {
    dir = mkdtempSync("/var/tmp/airlock-dockerd-");
    place = privateDockerd(dir);
    mkdirSync(`${place.execRoot}/containerd`, { recursive: true });
    writeFileSync(`${dir}/daemon.json`, "{}");
    useOwnNetwork();
    bystander = spawn("sleep", ["600"]);
  });

  /** Puts a `dockerd` first on the PATH that has a network namespace of its own: even a dockerd
   * without a bridge would remove the docker0 that the machine's own uses. */
  function useOwnNetwork(): void {
    const real = execFileSync("sh", ["-c", "command -v dockerd"], { encoding: "utf8" }).trim();
    writeFileSync(`${dir}/dockerd`, `#!/bin/sh\nexec unshare --net ${real} "$@"\n`, {
      mode: 0o755,
    });
    vi.stubEnv("PATH", `${dir}:${process.env["PATH"]}`);
  }

  afterEach(async () => {
    vi.unstubAllEnvs();
    bystander.kill();
    await end("SIGTERM");
    // dockerd mounts its data folder onto itself and leaves that behind.
    execFileSync("sh", ["-c", 'umount "$0" 2>/dev/null || true', `${dir}/data`]);
    rmSync(dir, { recursive: true });
  });

  async function end(signal: NodeJS.Signals): Promise<void> {
    const pid = readPidFile(place.pidFile);
    if (pid === undefined || readProcess(pid)?.name !== "dockerd") return;
    process.kill(pid, signal);
    while (readProcess(pid)) await sleep(20);
  }

  async function state(): Promise<string> {
    return (await pingEngine(`unix://${place.socket}`)).state;
  }

  test("starts where a crash left pid files whose pids other programs have", async () => {
    writeFileSync(place.pidFile, String(bystander.pid));
    writeFileSync(`${place.execRoot}/containerd/containerd.pid`, String(bystander.pid));
    writeFileSync(place.socket, "");
    const pid = await startDockerd(place);
    expect(await state()).toBe("answers");
    expect(readPidFile(place.pidFile)).toBe(pid);
    expect(readProcess(bystander.pid ?? 0)?.name).toBe("sleep");
  });

  test("starts after kill -9, and ends the containerd that was left", async () => {
    await startDockerd(place);
    await end("SIGKILL");
    const config = `${place.execRoot}/containerd/containerd.toml`;
    const orphan = spawn("containerd", ["--config", config], { stdio: "ignore" });
    writeFileSync(`${place.execRoot}/containerd/containerd.pid`, String(orphan.pid));
    const ended = once(orphan, "exit");
    await startDockerd(place);
    await ended;
    expect(await state()).toBe("answers");
  });

  test("waits for one that is starting instead of starting a second", async () => {
    const first = startDockerd(place);
    while (readPidFile(place.pidFile) === undefined) await sleep(5);
    expect(await startDockerd(place)).toBe(await first);
  });

  test("shows the end of the log where dockerd does not start", async () => {
    writeFileSync(`${dir}/daemon.json`, '{"no-such-option": 1}');
    await expect(startDockerd(place)).rejects.toThrow(/did not start[^]*no-such-option/);
  });
});
