import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import type Docker from "dockerode";
import { Agent, Pool, request } from "undici";
import { containerProfile } from "../../../agent/backends/profiles.ts";
import type { Engine } from "../../../agent/engine/engine.ts";
import { labels, plainSpec } from "../../../agent/sandbox/sandbox.ts";
import { ScriptedAgent, success } from "../../../api/testing/scripted-agent.ts";
import { startNode } from "../../../api/testing/start-node.ts";
import type { SyncResult } from "../../../shared/wire/executions.ts";
import type { PollReply } from "../../../shared/wire/leases.ts";
import type { Session } from "../../../shared/wire/sessions.ts";
import { hasCommand } from "../../setup/steps.ts";
import { childrenOf } from "../../testing/machine.ts";
import { startProcess } from "../../testing/start-process.ts";

/** What a row measures with. */
export type World = {
  readonly engine: Engine;
  readonly docker: Docker;
  readonly dockerHost: string;
  /** The image of the default job type. */
  readonly image: string;
  /** Few samples: whether it works, not how fast. */
  readonly quick: boolean;
  /** `full` of something, or the few that are enough to see that it works. */
  readonly samples: (full: number) => number;
  /** API and agent as `npm start` runs them, gone with all they made once disposed of. */
  readonly startService: (options?: ServiceOptions) => Promise<Service>;
};

const QUICK_SAMPLES = 2;

export function createWorld(
  given: Pick<World, "engine" | "docker" | "dockerHost" | "image" | "quick">,
): World {
  const { engine, dockerHost, quick } = given;
  return {
    ...given,
    samples: (full) => (quick ? Math.min(QUICK_SAMPLES, full) : full),
    startService: (options) => startService(engine, dockerHost, options),
  };
}

type ServiceOptions = {
  /** Configuration keys, as AIRLOCK_<KEY> in lower case without the prefix. */
  readonly config?: Readonly<Record<string, string | number | boolean>>;
  /** Tables of job types, as in airlock.toml. */
  readonly toml?: string;
  /** Further variables of the processes' environment. */
  readonly env?: Readonly<Record<string, string>>;
};

/** Does a task so often, so many at once. */
export async function repeatedly(
  times: number,
  atOnce: number,
  task: (n: number) => Promise<unknown>,
): Promise<void> {
  const left = Array.from({ length: times }).keys();
  const work = async (): Promise<void> => {
    for (const n of left) await task(n);
  };
  await Promise.all(Array.from({ length: atOnce }, work));
}

type Method = "GET" | "POST" | "DELETE";

/** A running service with one agent, as a row uses it. */
export type Service = Awaited<ReturnType<typeof startService>>;

const WARM_UP_AT_ONCE = 4;
const LOOK_MS = 25;
/** Longer than a refill waits before it begins. */
const QUIET_MS = 200;
const SETTLE_LIMIT_MS = 20_000;

let count = 0;

/** Starts what `npm start` starts, with data, port and agent of its own. */
async function startService(
  engine: Engine,
  dockerHost: string,
  { config = {}, toml = "", env = {} }: ServiceOptions = {},
) {
  const folder = mkdtempSync(join(tmpdir(), "airlock-bench-"));
  const file = join(folder, "airlock.toml");
  writeFileSync(file, toml);
  const agentName = `bench-${process.pid}-${(count += 1)}`;
  const started = startProcess(process.cwd(), {
    ...withoutAirlock(process.env),
    ...env,
    AIRLOCK_CONFIG: file,
    AIRLOCK_DATA_DIR: join(folder, "data"),
    AIRLOCK_SPOOL_DIR: join(folder, "spool"),
    AIRLOCK_PORT: "0",
    AIRLOCK_DOCKER_HOST: dockerHost,
    AIRLOCK_AGENT_NAME: agentName,
    AIRLOCK_API_RATE_LIMIT_ENABLED: "false",
    ...Object.fromEntries(
      Object.entries(config).map(([key, value]) => [`AIRLOCK_${key.toUpperCase()}`, String(value)]),
    ),
  });
  const dispatcher = new Agent({ keepAliveTimeout: 60_000 });

  const end = async (): Promise<void> => {
    await dispatcher.destroy();
    started.signal("SIGTERM");
    await started.exited;
    rmSync(folder, { recursive: true, force: true });
  };
  try {
    await started.printed("documented at");
  } catch (error) {
    await end();
    throw error;
  }
  const url = /documented at (http:\S+)\/docs;/.exec(started.output())?.[1] ?? "";

  const send = async <T>(method: Method, path: string, body?: object): Promise<T> => {
    const answer = await request(`${url}${path}`, {
      dispatcher,
      method,
      headers: { "content-type": "application/json" },
      ...(body && { body: JSON.stringify(body) }),
    });
    const text = await answer.body.text();
    if (answer.statusCode >= 300) {
      throw new Error(`${method} ${path}: ${answer.statusCode} ${text}`);
    }
    return (text === "" ? undefined : JSON.parse(text)) as T;
  };
  const execute = async (code: string, more: object = {}): Promise<SyncResult> => {
    const result = await send<SyncResult>("POST", "/execute", { code, ...more });
    if (!result.success) throw new Error(`a job failed: ${JSON.stringify(result)}`);
    return result;
  };
  /** The containers of the agent, by id and state. */
  const containers = async (): Promise<string> => {
    const found = await engine.list(labels.agentName, agentName, AbortSignal.timeout(10_000));
    const states = found.map(({ id, isRunning }) => `${id} ${isRunning ? "running" : "other"}`);
    return states.sort().join("\n");
  };

  return {
    url,
    /** What the containers of the agent are labelled with. */
    agentName,
    /** Sends a request, and returns what the answer says. Throws Error on one that is no success. */
    send,
    /** Runs code by POST /execute. Throws Error unless it succeeded. */
    execute,
    /** Process ids by the entry point. */
    pids: () => ({
      api: childRunning(started.pid, "api/node.ts"),
      agent: childRunning(started.pid, "agent/main.ts"),
    }),
    /** Runs hello so often, a few at once, so that both processes have compiled what they run. */
    warmUp: (times: number, more?: object): Promise<void> =>
      repeatedly(times, WARM_UP_AT_ONCE, () => execute(HELLO, more)),
    /** Waits until the pool has been filled again, and until nothing has changed for a while. */
    settled: async (): Promise<void> => {
      const limit = performance.now() + SETTLE_LIMIT_MS;
      let before = await containers();
      for (let quietSince = performance.now(); performance.now() < quietSince + QUIET_MS;) {
        if (performance.now() > limit) throw new Error(`the pool never came to rest:\n${before}`);
        await sleep(LOOK_MS);
        const now = await containers();
        if (now !== before || now.includes("other")) quietSince = performance.now();
        before = now;
      }
    },
    [Symbol.asyncDispose]: end,
  };
}

/** An empty value counts as unset. */
function withoutAirlock(env: NodeJS.ProcessEnv): Record<string, string> {
  const names = Object.keys(env).filter((name) => name.startsWith("AIRLOCK_"));
  return Object.fromEntries(names.map((name) => [name, ""]));
}

function childRunning(parentPid: number, entry: string): number {
  const found = childrenOf(parentPid).find((pid) =>
    readFileSync(`/proc/${pid}/cmdline`, "utf8").includes(entry),
  );
  if (found === undefined) throw new Error(`no process runs ${entry}`);
  return found;
}

/** Makes a session that is ready. */
export async function openSession(service: Service, request: object = {}): Promise<string> {
  const session = await service.send<Session>("POST", "/sessions", request);
  if (session.status !== "ready") throw new Error(`no session: ${JSON.stringify(session)}`);
  return session.session_id;
}

/** Runs a call to its end. Throws Error unless it succeeded. */
export async function callSession(service: Service, id: string, call: object): Promise<SyncResult> {
  const result = await service.send<SyncResult>("POST", `/sessions/${id}/execute`, call);
  if (!result.success) throw new Error(`a call failed: ${JSON.stringify(result)}`);
  return result;
}

export async function endSession(service: Service, id: string): Promise<void> {
  await service.send("DELETE", `/sessions/${id}`);
}

/** The job that everybody runs. */
export const HELLO = "print('hello')";

const MiB = 1024 ** 2;
const LABEL = "io.airlock.bench";
const CALL_MS = 60_000;

/**
 * One container from create to removed, straight over the engine's socket, with the options that an
 * Airlock container has.
 */
export async function coldCycle(engine: Engine, image: string): Promise<void> {
  const signal = AbortSignal.timeout(CALL_MS);
  const profile = bareProfile(image);
  const id = await engine.create(profile, signal);
  try {
    const stream = await engine.attach(id, signal);
    const printed = text(stream);
    await engine.start(id, signal);
    await engine.wait(id, signal);
    if (!(await printed).includes("hello")) throw new Error("the container did not say hello");
  } finally {
    await engine.remove(id, signal);
  }
}

function bareProfile(image: string) {
  const profile = containerProfile({
    ...plainSpec,
    image,
    labels: { agentId: "bench", agentName: "bench", leaseId: null },
    memoryBytes: 512 * MiB,
    pids: 128,
  });
  const labels = { [LABEL]: "bare" } as unknown as typeof profile.Labels;
  return { ...profile, Labels: labels, Cmd: ["-c", HELLO], OpenStdin: false, StdinOnce: false };
}

/** Removes what a bench that was killed has left. */
export async function removeBare(engine: Engine): Promise<void> {
  const signal = AbortSignal.timeout(CALL_MS);
  for (const { id } of await engine.list(LABEL, "bare", signal)) await engine.remove(id, signal);
}

export const hasDockerCommand = hasCommand("docker");

const runToEnd = promisify(execFile);

/** The command line that a user would pick instead. */
export async function dockerRun(dockerHost: string, image: string): Promise<void> {
  const args = ["run", "--rm", "--network", "none", image, "python3", "-c", HELLO];
  const { stdout } = await runToEnd("docker", args, {
    env: { ...process.env, DOCKER_HOST: dockerHost },
  });
  if (stdout !== "hello\n") throw new Error(`docker run printed ${JSON.stringify(stdout)}`);
}

const bwrap = "/usr/bin/bwrap";
/** Debian's own: a name on the PATH may be a script that looks for an interpreter first. */
const python = "/usr/bin/python3";
const isolated = "--unshare-all --ro-bind / / --dev /dev --proc /proc --tmpfs /tmp".split(" ");

/** What a process costs without Airlock: with bubblewrap's namespaces around it, where that is installed, and Python alone. */
export const anchors: readonly { readonly name: string; readonly run: () => Promise<void> }[] = [
  ...(existsSync(bwrap)
    ? [{ name: "bwrap … python3", run: () => run(bwrap, [...isolated, python, "-c", HELLO]) }]
    : []),
  { name: "python3, not isolated", run: () => run(python, ["-c", HELLO]) },
];

async function run(command: string, args: readonly string[]): Promise<void> {
  const [code] = (await once(spawn(command, args, { stdio: "ignore" }), "exit")) as [number];
  if (code !== 0) throw new Error(`${command} ended with ${code}`);
}

type Used = {
  /** Without the files that the kernel may drop. */
  readonly memoryMb: number;
  readonly cpuMs: number;
};

/** What the control groups of an agent's containers hold and have used. */
export async function usedByContainers(
  { engine, docker }: World,
  agentName: string,
): Promise<Used> {
  const found = await engine.list(labels.agentName, agentName, AbortSignal.timeout(10_000));
  const all = await Promise.all(
    found.map(({ id }) => docker.getContainer(id).stats({ stream: false, "one-shot": true })),
  );
  const used = { memoryMb: 0, cpuMs: 0 };
  for (const { memory_stats, cpu_stats } of all) {
    const { usage, stats } = memory_stats;
    // Control groups v1 and v2.
    const files = stats.total_inactive_file ?? stats.inactive_file;
    used.memoryMb += (usage - files) / 1e6;
    used.cpuMs += cpu_stats.cpu_usage.total_usage / 1e6;
  }
  return used;
}

/** Linux reports CPU time in ticks of 10 ms on every architecture. */
export const msPerTick = 10;

/** User and system time of a process so far. Source: proc_pid_stat(5). */
export function cpuMsOf(pid: number): number {
  const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
  const words = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return (Number(words[11]) + Number(words[12])) * msPerTick;
}

/** What a process has given the kernel to store so far. Source: proc_pid_io(5). */
export function storedKbOf(pid: number): number {
  const bytes = /^write_bytes: (\d+)$/m.exec(readFileSync(`/proc/${pid}/io`, "utf8"))?.[1];
  return Number(bytes) / 1e3;
}

const CLIENT_KEYS = Array.from({ length: 4 }, (_, i) => `bench-client-key-0123456789-${i}`);
const AGENT_TOKEN = "bench-agent-token-0123456789";
const CONNECTIONS = 64;

const meter = new URL("meters.ts", import.meta.url).href;

export type ApiService = Awaited<ReturnType<typeof startApi>>;

/**
 * The API alone, on an empty database file unless the variables say otherwise, as `npm run api` runs it: keys on, durable, rate limit off.
 */
export async function startApi(vars: Record<string, string> = {}, connections = CONNECTIONS) {
  const api = await startNode({
    NODE_OPTIONS: `--import ${meter}`,
    AIRLOCK_API_AUTH_ENABLED: "true",
    AIRLOCK_API_KEYS: CLIENT_KEYS.join(","),
    AIRLOCK_AGENT_TOKENS: AGENT_TOKEN,
    AIRLOCK_API_RATE_LIMIT_ENABLED: "false",
    AIRLOCK_MAX_QUEUE_SIZE: "1000000",
    ...vars,
  });
  const { url, child } = api;
  const pool = new Pool(url, { connections, keepAliveTimeout: 60_000 });

  return {
    url,
    /** Sends by one of four clients' keys. Throws Error on an answer that is no success. */
    send: async (method: "GET" | "POST", path: string, body?: object, client = 0) => {
      const isAgents = path.startsWith("/agent/");
      const key = CLIENT_KEYS[client % CLIENT_KEYS.length];
      const { statusCode, body: read } = await pool.request({
        method,
        path,
        headers: {
          authorization: `Bearer ${isAgents ? AGENT_TOKEN : key}`,
          "content-type": "application/json",
        },
        ...(body !== undefined && { body: JSON.stringify(body) }),
      });
      const text = await read.text();
      if (statusCode >= 300) throw new Error(`${method} ${path}: ${statusCode} ${text}`);
      return { status: statusCode, text };
    },
    /** CPU time used so far, in ms. */
    cpuMs: () => cpuMsOf(child.pid!),
    /** The longest that its event loop stood still since this was last asked, in ms. */
    worstStallMs: async (): Promise<number> => {
      const told = once(child, "message") as Promise<[number]>;
      child.send("stall?");
      return (await told)[0];
    },
    [Symbol.asyncDispose]: async (): Promise<void> => {
      await pool.destroy();
      await api.close();
    },
  };
}

export const API_CLIENTS = 32;
export const AGENTS = 4;
export const API_SLOTS = 16;
export const helloJob = { code: 'print("hello")' };

/** Submits jobs and ends all of them. */
export async function runJobs(api: Pick<ApiService, "send">, count: number): Promise<void> {
  let toFinish = count;
  const submit = () => api.send("POST", "/execute/async", helloJob);
  const agent = async (): Promise<void> => {
    const asked = { slots: API_SLOTS, free_slots: API_SLOTS, wait_s: 0.1 };
    const poll = new ScriptedAgent("", "").pollRequest(asked);
    while (toFinish > 0) {
      const { text } = await api.send("POST", "/agent/v1/poll", poll);
      const { jobs } = JSON.parse(text) as PollReply;
      toFinish -= jobs.length;
      const finish = ({ lease_id }: { lease_id: string }) =>
        api.send("POST", `/agent/v1/leases/${lease_id}/result`, success);
      await Promise.all(jobs.map(finish));
    }
  };
  await Promise.all([
    repeatedly(count, API_CLIENTS, submit),
    ...Array.from({ length: AGENTS }, agent),
  ]);
}
