import { type ChildProcess, spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { mkdirSync, writeFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { type CodeSignal, makeCodeSignal } from "../../agent/testing/raw-engine.ts";
import { tempFolder, waitUntil } from "../../shared/testing/test-file.ts";
import type { Health } from "../../shared/wire/health.ts";
import {
  connect,
  type DockerdPlace,
  ensureEngine,
  pingEngine,
  readPidFile,
  readProcess,
  startDockerd,
} from "../setup/engine.ts";
import { copyBaseImage, makePrivateDockerd, type PrivateDockerd } from "../testing/machine.ts";
import { needs } from "../testing/needs.ts";
import { postJson, startAirlock } from "../testing/start-process.ts";
import {
  type Json,
  startTestService,
  type TestAgent,
  type TestService,
} from "../testing/test-service.ts";

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

describe("start", () => {
  test("builds the image of the default job type if it needs one", async () => {
    const prefix = `airlock-test-${randomUUID()}`;
    const env = {
      AIRLOCK_DATA_DIR: tempFolder(),
      AIRLOCK_PRODUCTION_MODE: "true",
      AIRLOCK_IMAGE_PREFIX: prefix,
    };
    const image = connect(
      (await ensureEngine(process.env["AIRLOCK_DOCKER_HOST"])).dockerHost,
    ).getImage(`${prefix}-default:latest`);
    for (let starts = 0; starts < 2; starts++) {
      const { airlock, url } = await startAirlock(env);
      expect(airlock.output()).toContain("building the image of the default job type");
      expect(await postJson(`${url}/execute`, { code: "print(1)" })).toMatchObject({
        stdout: "1\n",
      });
      airlock.signal("SIGTERM");
      await airlock.exited;
      // Gone at the next start, which makes it anew.
      await image.remove();
    }
  });
});

const machine = process.env["AIRLOCK_DOCKER_HOST"] || "unix:///var/run/docker.sock";

describe("an engine that stops while code runs", needs("root"), () => {
  let dockerd: PrivateDockerd;
  let service: TestService;
  let agent: TestAgent;

  beforeAll(async () => {
    dockerd = makePrivateDockerd();
    await dockerd.start();
    await copyBaseImage(machine, dockerd.host);
    service = await startTestService();
    const vars = {
      AIRLOCK_DOCKER_HOST: dockerd.host,
      AIRLOCK_CONTAINER_BACKEND: "engine",
      AIRLOCK_WARM_POOL_SIZE: "2",
    };
    agent = await service.startAgent("agent", vars);
  });

  afterAll(async () => {
    await service?.[Symbol.asyncDispose]();
    await dockerd[Symbol.asyncDispose]();
  });

  const get = async (path: string): Promise<Json> => (await service.send("GET", path)).json;
  const health = async () => (await service.send<Health>("GET", "/health")).json;

  async function containers(): Promise<string[]> {
    const list = await connect(dockerd.host).listContainers({ all: true });
    return list.map(({ Id }) => Id);
  }

  /** What the agent's engine failed, as /metrics tells it. */
  async function engineErrors(operation: string, kind: string): Promise<number> {
    const labels = `agent="${agent.name}",operation="${operation}",kind="${kind}"`;
    const series = `airlock_engine_errors_total{${labels}} `;
    const lines = (await service.send("GET", "/metrics")).text.split("\n");
    return Number(lines.find((line) => line.startsWith(series))?.slice(series.length) ?? 0);
  }

  /** A job whose code runs until the signal, so that only an attempt after that comes to its end. */
  async function begin(signal: CodeSignal, ends = "print('done')"): Promise<string> {
    const id = await service.submit(`${signal.wait}\n${ends}`);
    await service.untilBegun(id);
    return id;
  }

  /** A dockerd that is killed while it starts a container leaves a shim that nobody ends. */
  async function untilRunning(count: number): Promise<void> {
    await waitUntil(
      `${count} containers run`,
      async () => (await connect(dockerd.host).listContainers()).length >= count,
    );
  }

  /** Sends it to whatever runs, now and later, until these have ended. */
  async function sendUntilEnded(signal: CodeSignal, ids: readonly string[]): Promise<void> {
    for (const id of ids) {
      await waitUntil(`${id} ends`, async () => {
        await signal.sendTo(agent.name, connect(dockerd.host));
        return (await service.record(id)).ended_at !== null;
      });
    }
  }

  /** /health at each new state of the breaker, until it is closed again; half open it may be for milliseconds only. */
  async function watchBreaker(): Promise<Health[]> {
    const seen: Health[] = [];
    for (;;) {
      const now = await health();
      const { state } = now.circuit_breaker;
      if (state !== seen.at(-1)?.circuit_breaker.state) {
        seen.push(now);
      }
      if (state === "closed" && seen.length > 1) return seen;
      await sleep(50);
    }
  }

  test("killed and soon back: the job runs again and succeeds, its first container is gone", async () => {
    expect(await engineErrors("ping", "unavailable")).toBe(0);
    const signal = makeCodeSignal();
    const id = await begin(signal);
    await untilRunning(1 + 2);
    const first = await containers();
    await dockerd.end("SIGKILL");
    await service.untilStatus(id, "queued");
    await dockerd.start();
    await sendUntilEnded(signal, [id]);
    await service.untilStatus(id, "succeeded");
    expect(await get(`/jobs/${id}/result`)).toMatchObject({ stdout: "done\n" });
    const breaker = async () => (await health()).circuit_breaker.state;
    await expect.poll(breaker, { timeout: 60_000 }).toBe("closed");
    const left = async () => {
      const now = new Set(await containers());
      return first.filter((container) => now.has(container));
    };
    await expect.poll(left, { timeout: 60_000 }).toEqual([]);
  });

  test("stopped for long: the breaker opens, half opens, closes, and the jobs are retried", async () => {
    const signal = makeCodeSignal();
    const jobs = await Promise.all([begin(signal), begin(signal)]);
    const failing = await begin(signal, "{}['missing']");
    const watch = watchBreaker();
    const stoppedMs = Date.now();
    await dockerd.end("SIGTERM");
    for (const id of [...jobs, failing]) await service.untilStatus(id, "queued");
    // What the engine is comes with the agent's next poll.
    await expect.poll(health, { timeout: 60_000 }).toMatchObject({
      status: "degraded",
      docker_available: false,
      queue_stats: { pending: 3, running: 0 },
    });

    await waitUntil(
      "the breaker opens",
      async () => (await health()).circuit_breaker.state === "open",
    );
    const { count } = await get("/executions");
    for (const path of ["/execute", "/execute/async"]) {
      const refused = await service.send("POST", path, { code: "print('never')" });
      expect(refused.status).toBe(503);
      expect(Number(refused.headers.get("Retry-After"))).toBeGreaterThan(0);
      expect(refused.json).toMatchObject({ error: { type: "service_unavailable" } });
    }
    expect((await get("/executions"))["count"]).toBe(count);

    await dockerd.start();
    await sendUntilEnded(signal, [...jobs, failing]);
    const states = await watch;
    const halfOpen = states.filter((seen) => seen.circuit_breaker.state === "half_open");
    for (const seen of halfOpen) expect(seen.status).toBe("healthy");
    expect(states.filter((seen) => !halfOpen.includes(seen))).toMatchObject([
      { circuit_breaker: { state: "closed" } },
      { status: "degraded", circuit_breaker: { state: "open", success_count: 0 } },
      { status: "healthy", circuit_breaker: { state: "closed", failure_count: 0 } },
    ]);
    const { failure_count, last_failure } = states[1]!.circuit_breaker;
    expect(failure_count).toBeGreaterThanOrEqual(5);
    expect(Date.parse(last_failure ?? "")).toBeGreaterThanOrEqual(stoppedMs);

    for (const id of jobs) {
      expect(await get(`/jobs/${id}/result?wait=true&timeout=240`)).toMatchObject({
        status: "succeeded",
      });
    }
    await get(`/jobs/${failing}/result?wait=true&timeout=240`);
    expect(await engineErrors("ping", "unavailable")).toBeGreaterThanOrEqual(5);
    expect(await get("/dlq")).toMatchObject({
      items: [{ job_id: failing, error_type: "key_error", retry_count: 1 }],
    });
    expect(await service.execute("print(1)")).toMatchObject({ success: true, stdout: "1\n" });
  }, 240_000);

  test("at the end nothing is left behind", async () => {
    agent.process.kill("SIGTERM");
    expect(await agent.exit).toBe(0);
    expect(await containers()).toEqual([]);
    const said = await agent.stderr;
    const at = (change: string) =>
      Date.parse(said.match(`.*(?= \\[-\\] WARNING airlock.agent circuit breaker: ${change})`)![0]);
    expect(at("open to half_open") - at("closed to open")).toBeGreaterThanOrEqual(29_990);
    expect(at("half_open to closed")).toBeGreaterThan(at("open to half_open"));
    await dockerd.end("SIGTERM");
    // Only the mount that dockerd makes of its data folder is there; and shims, which a dockerd that
    // is killed while it starts their containers never looks after again.
    const traces = () => dockerd.traces().filter((trace) => !/containerd-shim/.test(trace));
    await expect.poll(traces, { timeout: 60_000 }).toEqual([`${dockerd.dir}/data`]);
  });
});
