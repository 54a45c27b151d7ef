import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, writeFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { makePrivateDockerd, type PrivateDockerd } from "../../testing/private-dockerd.ts";
import type { DockerdPlace } from "./dockerd-place.ts";
import { pingEngine } from "./ping-engine.ts";
import { readPidFile, readProcess } from "./processes.ts";
import { startDockerd } from "./start-dockerd.ts";
import { needs } from "../../testing/needs.ts";

describe("a dockerd of the test's own", needs("root"), () => {
  let dockerd: PrivateDockerd;
  let place: DockerdPlace;
  let bystander: ChildProcess;

  beforeEach(() => {
    dockerd = makePrivateDockerd();
    ({ place } = dockerd);
    mkdirSync(`${place.execRoot}/containerd`, { recursive: true });
    bystander = spawn("sleep", ["600"]);
  });

  afterEach(async () => {
    bystander.kill();
    await dockerd[Symbol.asyncDispose]();
  });

  async function state(): Promise<string> {
    return (await pingEngine(dockerd.host)).state;
  }

  test("starts after a crash that left pid files whose pids other programs have", async () => {
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
    await dockerd.end("SIGKILL");
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

  test("shows the end of the log if dockerd does not start", async () => {
    writeFileSync(`${dockerd.dir}/daemon.json`, '{"no-such-option": 1}');
    await expect(startDockerd(place)).rejects.toThrow(/did not start[^]*no-such-option/);
  });
});
