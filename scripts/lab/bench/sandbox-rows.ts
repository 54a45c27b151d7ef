import { fork } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { Agent, request } from "undici";
import { peakBytes } from "../../../shared/testing/memory.ts";
import { labels } from "../../../agent/sandbox/sandbox.ts";
import type { PoolStats } from "../../../shared/wire/health.ts";
import type { Session } from "../../../shared/wire/sessions.ts";
import type { Batch, SubmittedBatch, SubmittedJob } from "../../../shared/wire/submissions.ts";
import { ensureScienceImage } from "../../setup/derived-images.ts";
import { interleave, type Row, type Series, type Side, timed, whenSettled } from "./measure.ts";
import {
  anchors,
  callSession,
  coldCycle,
  cpuMsOf,
  dockerRun,
  endSession,
  hasDockerCommand,
  HELLO,
  msPerTick,
  openSession,
  repeatedly,
  type Service,
  storedKbOf,
  usedByContainers,
  type World,
} from "./world.ts";

const CREATES = 1000;
const PLACES = 8;
const LOOK_MS = 20;
const PAGE = 100;

export const creates: Row = {
  name: "creates",
  what: `${CREATES.toLocaleString("en")} sessions made at once on ${PLACES} places, all of which get a place in the order in which they came; a hello alone, beside those that wait, and while each place is given up and taken again without a pause`,
  goal: "hello beside those that wait ≤ 1.5 × alone; each create 201 or 202, none lost, in order",
  measure: async (world) => {
    const count = world.quick ? 2 * PLACES : CREATES;
    await using service = await world.startService({
      config: {
        container_backend: "zygote",
        max_sessions: PLACES,
        max_sessions_per_tenant: CREATES,
      },
    });
    await service.warmUp(world.samples(300));
    const alone = await hellos(service, world.samples(100));
    const made = await Promise.all(
      Array.from({ length: count }, () => service.send<Session>("POST", "/sessions", { wait: 0 })),
    );
    const waiting = await hellos(service, world.samples(100));
    const isOver = new AbortController();
    const beside = hellos(service, Infinity, isOver.signal);
    const tookMs = await timed(() => giveUpAll(service, count));
    isOver.abort();
    await checkOrder(service, new Set(made.map(({ session_id }) => session_id)));
    return [
      { name: "hello alone", unit: "ms", samples: alone },
      { name: "hello beside those that wait", unit: "ms", samples: waiting },
      { name: "hello beside those that start", unit: "ms", samples: await beside },
      { name: "sessions that start", unit: "/s", samples: [(count / tookMs) * 1000] },
    ];
  },
  reaches: (of) => of("hello beside those that wait").p50 <= 1.5 * of("hello alone").p50,
};

/** Times of hellos, one after the other. */
async function hellos(service: Service, count: number, end?: AbortSignal): Promise<number[]> {
  const samples: number[] = [];
  const isOver = () => samples.length >= count || end?.aborted === true;
  while (!isOver()) samples.push(await timed(() => service.execute(HELLO)));
  return samples;
}

/** Ends each session when it is ready, until none is left. */
async function giveUpAll(service: Service, count: number): Promise<void> {
  for (let left = count; left > 0;) {
    const { items } = await service.send<{ items: Session[] }>("GET", "/sessions?status=ready");
    await Promise.all(items.map(({ session_id }) => endSession(service, session_id)));
    left -= items.length;
    if (items.length === 0) await sleep(LOOK_MS);
  }
}

/** @throws Error if one of the sessions was lost, or was taken before one that came earlier. */
async function checkOrder(service: Service, made: Set<string>): Promise<void> {
  let earliest = Infinity;
  let found = 0;
  for (let before: string | undefined; found < made.size;) {
    const from = before === undefined ? "" : `&before=${before}`;
    const { items } = await service.send<{ items: Session[] }>(
      "GET",
      `/sessions?limit=${PAGE}${from}`,
    );
    for (const { session_id, started_at, reason } of items) {
      const startedMs = Date.parse(started_at ?? "");
      const isRight = made.has(session_id) && reason === "deleted" && startedMs <= earliest;
      if (!isRight) throw new Error(`session ${session_id} was lost or out of order`);
      earliest = startedMs;
    }
    if (items.length === 0) throw new Error(`${made.size - found} sessions were lost`);
    found += items.length;
    before = items.at(-1)?.session_id;
  }
}

const BURST = 200;

export const forked: Row = {
  name: "forked",
  what: "hello, POST /execute to answer: jobs forked alone, one after the other, and 200 at once; in a container of its own; under gVisor where the engine has it",
  goal: "alone p50 ≤ 12 ms, p95 ≤ 16 ms; one after the other p50 ≤ 14 ms; 200 at once ≤ 3 s; gVisor p50 ≤ 60 ms",
  measure: async (world) => {
    const { engine, dockerHost, image } = world;
    const { runtimes } = await engine.describe(AbortSignal.timeout(10_000));
    await using ends = new AsyncDisposableStack();
    const start = async (config: Record<string, string | number>, warmUp: number) => {
      const service = ends.use(await world.startService({ config }));
      await service.warmUp(world.samples(warmUp));
      return service;
    };
    const forks = await start({ container_backend: "zygote", max_queue_size: 1000 }, 300);
    const containers = await start({ container_backend: "engine" }, 300);
    const gvisor = runtimes.includes("runsc")
      ? [alone("gVisor", await start({ container_runtime: "runsc" }, 40))]
      : [];
    const sides: Side[] = [
      alone("alone", forks),
      { name: "one after the other", perRound: 20, once: () => timed(() => forks.execute(HELLO)) },
      {
        name: "200 at once",
        once: () => timed(() => repeatedly(BURST, BURST, () => forks.execute(HELLO))),
      },
      ...anchors.map(({ name, run }) => ({ name, once: () => timed(run) })),
      alone("in a container", containers),
      ...gvisor,
      whenSettled(containers, "bare engine, cold cycle", () => coldCycle(engine, image)),
      ...(hasDockerCommand
        ? [{ name: "docker run", once: () => timed(() => dockerRun(dockerHost, image)) }]
        : []),
    ];
    return await interleave("ms", sides, { warmUp: 1, rounds: world.samples(20) });
  },
  reaches: (of, has) =>
    of("alone").p50 <= 12 &&
    of("alone").p95 <= 16 &&
    of("one after").p50 <= 14 &&
    of("200 at once").p50 <= 3000 &&
    (!has("gVisor") || of("gVisor").p50 <= 60),
};

const alone = (name: string, service: Service): Side =>
  whenSettled(service, name, () => service.execute(HELLO));

const IMPORT = `import numpy, pandas\n${HELLO}`;

export const preload: Row = {
  name: "preload",
  what: "`import numpy, pandas` where the interpreter has imported both before the job came: forked, by what is listed and by auto, and in a container",
  goal: "preloaded p50 ≤ that of hello + 5 ms; auto ≤ hello + 15 ms",
  measure: async (world) => {
    const image = JSON.stringify(await ensureScienceImage(world.docker));
    const toml = `[job_types.preloaded]
base_image = ${image}
preload = ["numpy", "pandas"]
[job_types.auto]
base_image = ${image}
[job_types.plain]
base_image = ${image}
preload = []
`;
    const start = (container_backend: string) =>
      world.startService({ config: { container_backend }, toml });
    await using forked = await start("zygote");
    await using containers = await start("engine");
    const sides = [
      side(forked, "preloaded", IMPORT, "preloaded"),
      side(forked, "hello", HELLO, "default"),
      side(forked, "auto", IMPORT, "auto"),
      side(forked, "imported by the job", IMPORT, "plain"),
      side(containers, "preloaded, in a container", IMPORT, "preloaded"),
    ];
    for (const { warmUp } of sides) await warmUp(world.samples(30));
    const rounds = { warmUp: world.samples(4), rounds: world.samples(20) };
    return await interleave("ms", sides, rounds);
  },
  reaches: (of) =>
    of("preloaded").p50 <= of("hello").p50 + 5 && of("auto").p50 <= of("hello").p50 + 15,
};

function side(
  service: Service,
  name: string,
  code: string,
  job_type: string,
): Side & { warmUp: (times: number) => Promise<void> } {
  return {
    ...whenSettled(service, name, () => service.execute(code, { job_type })),
    warmUp: (times) => service.warmUp(times, { job_type }),
  };
}

export const cpu: Row = {
  name: "cpu",
  what: "CPU time of each hello in each process, one job after the other and 8 at once; the same of the floor, a service of 90 lines that promises nothing (scripts/lab/bench/floor.ts); and what nobody disturbs: statements on the database, page faults, context switches and new processes of each hello",
  goal: "preloaded ≤ hello + 3 ms; API ≤ 2 × floor; statements ≤ 16, 8 at once ≤ 12",
  measure: async (world) => {
    const image = JSON.stringify(await ensureScienceImage(world.docker));
    const preloaded = `[job_types.preloaded]\nbase_image = ${image}\npreload = ["numpy", "pandas"]\n`;
    await using forked = await world.startService({
      config: { container_backend: "zygote" },
      toml: preloaded,
    });
    await using plain = await world.startService({ config: { container_backend: "engine" } });
    await using floor = await startFloor();
    return [
      ...(await measure(world, forked, "forked", "default")),
      ...(await measure(world, forked, "forked, 8 at once", "default", 8)),
      ...(await measureFloor(world, floor, "floor", 1)),
      ...(await measureFloor(world, floor, "floor, 8 at once", 8)),
      ...(await measure(world, forked, "forked, numpy and pandas preloaded", "preloaded")),
      ...(await measure(world, plain, "containers", "default")),
      ...(await countStatements(world)),
    ];
  },
  reaches: (of) =>
    of("forked, numpy and pandas preloaded: job").p50 <= of("forked: job").p50 + 3 &&
    of("forked: API").p50 <= 2 * of("floor: API").p50 &&
    of("forked, 8 at once: API").p50 <= 2 * of("floor, 8 at once: API").p50 &&
    of("forked: statements").p50 <= 16 &&
    of("forked, 8 at once: statements").p50 <= 12,
};

async function measure(
  world: World,
  service: Service,
  name: string,
  job_type: string,
  atOnce = 1,
): Promise<Series[]> {
  const jobs = world.quick ? 2 : 100 * Math.min(atOnce, 4);
  await service.warmUp(world.samples(200), { job_type });
  const samples = new Map<string, number[]>();
  const counts = new Map<string, number[]>();
  for (let round = 0; round < world.samples(5); round++) {
    await service.settled();
    const before = await used(world, service);
    const countedBefore = counted();
    const machineBefore = ofMachine();
    await repeatedly(jobs, atOnce, () => service.execute(HELLO, { job_type }));
    const machine = ofMachine() - machineBefore;
    add(counts, counted(), countedBefore, jobs);
    const after = await used(world, service);
    // It includes the engine, the kernel and the client, which have no series of their own.
    before.set("whole machine", 0);
    after.set("whole machine", machine);
    add(samples, after, before, jobs);
  }
  return [...seriesOf(name, "ms", samples), ...seriesOf(name, "each", counts)];
}

/** Adds what each has used for each job. */
function add(
  samples: Map<string, number[]>,
  after: Map<string, number>,
  before: Map<string, number>,
  jobs: number,
): void {
  for (const [who, sum] of after) {
    samples.set(who, [...(samples.get(who) ?? []), (sum - (before.get(who) ?? 0)) / jobs]);
  }
}

const seriesOf = (name: string, unit: Series["unit"], samples: Map<string, number[]>): Series[] =>
  [...samples].map(([who, each]) => ({ name: `${name}: ${who}`, unit, samples: each }));

/** What the machine has counted so far. Source: proc(5). */
function counted(): Map<string, number> {
  const text = readFileSync("/proc/vmstat", "utf8") + readFileSync("/proc/stat", "utf8");
  const sum = (name: string): number => Number(new RegExp(`^${name} (\\d+)$`, "m").exec(text)?.[1]);
  return new Map([
    ["page faults", sum("pgfault")],
    ["context switches", sum("ctxt")],
    ["processes", sum("processes")],
  ]);
}

/** Statements of each hello, BEGIN and COMMIT included, in a service of its own: counting costs time. */
async function countStatements(world: World): Promise<Series[]> {
  await using counted = await startCounted(world);
  await counted.service.warmUp(world.samples(60));
  const found: Series[] = [];
  for (const [name, atOnce] of [["forked", 1] as const, ["forked, 8 at once", 8] as const]) {
    const samples: number[] = [];
    for (let round = 0; round < world.samples(5); round++) {
      const before = await counted.statements();
      await repeatedly(world.samples(80), atOnce, () => counted.service.execute(HELLO));
      samples.push(((await counted.statements()) - before) / world.samples(80));
    }
    found.push({ name: `${name}: statements`, unit: "each", samples });
  }
  return found;
}

/** A service that tells how many statements its API has run. */
async function startCounted(world: World, config: Record<string, string> = {}) {
  const file = join(mkdtempSync(join(tmpdir(), "airlock-bench-")), "statements");
  const counter = new URL("meters.ts", import.meta.url).href;
  const service = await world.startService({
    config: { container_backend: "zygote", ...config },
    env: { NODE_OPTIONS: `--import ${counter}`, BENCH_STATEMENTS: file },
  });
  return {
    service,
    statements: async (): Promise<number> => {
      await sleep(3 * TOLD_MS);
      return Number(readFileSync(file, "utf8"));
    },
    [Symbol.asyncDispose]: async (): Promise<void> => {
      await service[Symbol.asyncDispose]();
      rmSync(dirname(file), { recursive: true });
    },
  };
}

const BATCH = 100;
const LINES = 100;

export const calls: Row = {
  name: "calls",
  what: `CPU time and statements of what else is asked for often, beside a hello: a call of a session, a job of a batch of ${BATCH}, an execution by Piston's protocol, a line of a job that one client follows (${LINES} lines, 10 ms apart)`,
  goal: "none costs the API more than 1.5 × a hello",
  measure: async (world) => {
    await using counted = await startCounted(world, { compat: "piston" });
    const { service, statements } = counted;
    await service.warmUp(world.samples(200));
    const found: Series[] = [];
    for (const { name, each, run } of await callsOf(service)) {
      const times = Math.ceil(world.samples(100) / each);
      await repeatedly(times, 1, run);
      const samples = new Map<string, number[]>();
      const asked: number[] = [];
      for (let round = 0; round < world.samples(5); round++) {
        await service.settled();
        const told = await statements();
        const before = await used(world, service);
        await repeatedly(times, 1, run);
        add(samples, await used(world, service), before, times * each);
        asked.push(((await statements()) - told) / (times * each));
      }
      found.push(...seriesOf(name, "ms", samples));
      found.push({ name: `${name}: statements`, unit: "each", samples: asked });
    }
    return found;
  },
  reaches: (of) =>
    ["call of a session", "job of a batch", "Piston", "line"].every(
      (name) => of(`${name}: API`).p50 <= 1.5 * of("hello: API").p50,
    ),
};

/** What a client asks for, and how many of what is counted come of one `run`. */
async function callsOf(service: Service) {
  const session = await openSession(service);
  const call = { code: HELLO };
  const piston = { language: "python", version: "*", files: [{ content: HELLO }] };
  return [
    { name: "hello", each: 1, run: () => service.execute(HELLO) },
    { name: "call of a session", each: 1, run: () => callSession(service, session, call) },
    { name: "job of a batch", each: BATCH, run: () => runBatch(service) },
    {
      name: "Piston",
      each: 1,
      run: () => service.send("POST", "/compat/piston/api/v2/execute", piston),
    },
    { name: "line", each: LINES, run: () => followLines(service) },
  ];
}

/** Reads how far it is ten times a second. */
async function runBatch(service: Service): Promise<void> {
  const jobs = Array.from({ length: BATCH }, () => ({ code: HELLO }));
  const { batch_id } = await service.send<SubmittedBatch>("POST", "/execute/batch", { jobs });
  for (;;) {
    const { finished, counts } = await service.send<Batch>("GET", `/batches/${batch_id}`);
    if (finished && counts.succeeded !== BATCH) throw new Error("a job of a batch failed");
    if (finished) return;
    await sleep(100);
  }
}

async function followLines(service: Service): Promise<void> {
  const code = `import time\nfor n in range(${LINES}): print("line", n, flush=True); time.sleep(0.01)`;
  const { job_id } = await service.send<SubmittedJob>("POST", "/execute/async", { code });
  const seen = await (await fetch(`${service.url}/jobs/${job_id}/events`)).text();
  if (!seen.includes(`line ${LINES - 1}`)) throw new Error("a follower has not seen the last line");
}

/** How often the count is written (meters.ts). */
const TOLD_MS = 50;

/** About as long as a hello runs: what comes less often costs more each time. */
const RUN_MS = 15;

/** The floor and its agent, which runs nothing: as many polls as a hello's service has slots. */
async function startFloor() {
  const folder = mkdtempSync(join(tmpdir(), "airlock-bench-"));
  const child = fork(new URL("floor.ts", import.meta.url), [folder]);
  const [url] = (await once(child, "message")) as [string];
  const dispatcher = new Agent({ keepAliveTimeout: 60_000 });
  const end = new AbortController();
  const post = async <T>(path: string, body: object): Promise<T> => {
    const headers = { "content-type": "application/json" };
    const asked = { dispatcher, method: "POST", headers, signal: end.signal } as const;
    const answer = await request(`${url}${path}`, { ...asked, body: JSON.stringify(body) });
    return (await answer.body.json()) as T;
  };
  const agent = async (): Promise<void> => {
    while (!end.signal.aborted) {
      const { lease_id } = await post<{ lease_id: string }>("/poll", { free_slots: 1 });
      await sleep(RUN_MS);
      await post("/result", { lease_id, stdout: "hello\n" });
    }
  };
  const agents = Array.from({ length: 4 }, () => agent().catch(() => {}));
  return {
    pid: child.pid!,
    hello: () => post("/execute", { code: HELLO }),
    [Symbol.asyncDispose]: async (): Promise<void> => {
      end.abort();
      await Promise.all(agents);
      child.disconnect();
      await once(child, "exit");
      await dispatcher.destroy();
      rmSync(folder, { recursive: true });
    },
  };
}

async function measureFloor(
  world: World,
  { pid, hello }: Awaited<ReturnType<typeof startFloor>>,
  name: string,
  atOnce: number,
): Promise<Series[]> {
  await repeatedly(world.samples(1000), atOnce, hello);
  const samples: number[] = [];
  for (let round = 0; round < world.samples(5); round++) {
    const jobs = world.samples(400);
    const before = cpuMsOf(pid);
    await repeatedly(jobs, atOnce, hello);
    samples.push((cpuMsOf(pid) - before) / jobs);
  }
  return [{ name: `${name}: API`, unit: "ms", samples }];
}

/** CPU time in ms so far. */
async function used({ docker }: World, service: Service): Promise<Map<string, number>> {
  const { api, agent } = service.pids();
  const found = new Map([
    ["API", cpuMsOf(api)],
    ["agent", cpuMsOf(agent)],
  ]);
  const filters = { label: [`${labels.agentName}=${service.agentName}`] };
  const all = await docker.listContainers({ filters });
  const mother = all.find(({ Labels }) => Labels[labels.leaseId]?.startsWith("mother-"));
  if (mother) {
    const container = docker.getContainer(mother.Id);
    const { cpu_stats } = await container.stats({ stream: false, "one-shot": true });
    const own = cpuMsOf((await container.inspect()).State.Pid);
    found.set("mother", own);
    found.set("job, with its forks", cpu_stats.cpu_usage.total_usage / 1e6 - own);
  }
  return found;
}

/** All but idle and iowait. */
function ofMachine(): number {
  const [line = ""] = readFileSync("/proc/stat", "utf8").split("\n");
  const [user, nice, system, , , irq, softirq] = line.trim().split(/\s+/).slice(1).map(Number);
  return (user! + nice! + system! + irq! + softirq!) * msPerTick;
}

const MiB = 1024 ** 2;
const jobs = 20;
/** Long enough for all to run at once. */
const sleepS = 15;
const hello = `print("hello", flush=True)\nimport time\ntime.sleep(${sleepS})`;

export const memory: Row = {
  name: "memory",
  what: `memory of the agent's containers for each running hello, with ${jobs} at once; the agent's own, resident, before and after a job has written 10 GB to stdout`,
  goal: "forked ≤ 5 MB; agent's peak ≤ 150 MB",
  measure: async (world) => [
    await ofContainers(world, "forked", "zygote"),
    await ofContainers(world, "in containers", "engine"),
    ...(await ofAgent(world)),
  ],
  reaches: (of) => of("forked").p50 <= 5 && of("agent, peak").max <= 150,
};

async function ofAgent(world: World): Promise<Series[]> {
  await using service = await world.startService();
  const { agent } = service.pids();
  const before = peakBytes(agent) / 1e6;
  const chunks = world.quick ? 256 : 10 * 1024;
  const code = `import os\nchunk = b"x" * ${MiB}\nfor _ in range(${chunks}): os.write(1, chunk)`;
  await service.execute(code, { timeout: 240 });
  return [
    { name: "agent, peak", unit: "MB", samples: [peakBytes(agent) / 1e6] },
    { name: "agent, before the job", unit: "MB", samples: [before] },
  ];
}

async function ofContainers(world: World, name: string, backend: string): Promise<Series> {
  await using service = await world.startService({
    config: { container_backend: backend, max_workers: jobs, warm_pool_size: 0 },
  });
  await service.warmUp(world.samples(20));
  const samples: number[] = [];
  for (let round = 0; round < world.samples(3); round++) {
    await service.settled();
    const before = await usedByContainers(world, service.agentName);
    const several = Array.from({ length: jobs }, () => service.execute(hello, { timeout: 60 }));
    const running = Promise.all(several);
    await untilAllRun(service);
    const after = await usedByContainers(world, service.agentName);
    await running;
    samples.push((after.memoryMb - before.memoryMb) / jobs);
  }
  return { name, unit: "MB", samples };
}

async function untilAllRun({ url }: Service): Promise<void> {
  for (;;) {
    const { workers } = (await (await fetch(`${url}/pool/stats`)).json()) as PoolStats;
    if (workers.running === jobs) break;
    await sleep(100);
  }
  // A job that was leased may not have printed yet.
  await sleep(1000);
}

const COUNT = 50;
const HELD_MB = 10;
const holding = { code: `held = b"x" * ${HELD_MB}_000_000` };
/** An agent's poll waits for less, so that each window has some. */
const WINDOW_S = 20;

export const idle: Row = {
  name: "idle",
  what: `an agent without a session and with ${COUNT} idle ones: memory of its containers for each session, new and after a call whose code holds ${HELD_MB} MB; CPU time of API, agent and containers in a second, and what the API writes in it`,
  goal: `new ≤ 6 MB; after a call ≤ ${HELD_MB} + 12 MB; ${COUNT} sessions ≤ 2 × the CPU time and 1.5 × the writes of none`,
  measure: async (world) => {
    const count = world.quick ? 2 : COUNT;
    await using service = await world.startService({
      config: { container_backend: "zygote", max_sessions: count },
    });
    await service.warmUp(world.samples(50));
    const none = await windows(world, service);
    const before = await memoryMb(world, service);
    const opened = [];
    for (let n = 0; n < count; n++) opened.push(await openSession(service, { idle_timeout: null }));
    const fresh = (await memoryMb(world, service)) - before;
    const some = await windows(world, service);
    for (const id of opened) await callSession(service, id, holding);
    const used = (await memoryMb(world, service)) - before;
    const each = (name: string, megabytes: number): Series => ({
      name,
      unit: "MB",
      samples: [megabytes / count],
    });
    return [
      { name: "no session: CPU", unit: "ms", samples: none.cpuMs },
      { name: "idle sessions: CPU", unit: "ms", samples: some.cpuMs },
      { name: "no session: written", unit: "kB", samples: none.storedKb },
      { name: "idle sessions: written", unit: "kB", samples: some.storedKb },
      each("new session", fresh),
      each("session after a call", used),
    ];
  },
  reaches: (of) =>
    of("new session").p50 <= 6 &&
    of("session after").p50 <= HELD_MB + 12 &&
    of("idle sessions: CPU").p50 <= 2 * of("no session: CPU").p50 &&
    of("idle sessions: written").p50 <= 1.5 * of("no session: written").p50,
};

async function memoryMb(world: World, service: Service): Promise<number> {
  await service.settled();
  return (await usedByContainers(world, service.agentName)).memoryMb;
}

/** CPU time and writes in each second of some windows. */
async function windows(world: World, service: Service) {
  const { api, agent } = service.pids();
  const now = async () => ({
    atMs: performance.now(),
    cpuMs: cpuMsOf(api) + cpuMsOf(agent) + (await usedByContainers(world, service.agentName)).cpuMs,
    storedKb: storedKbOf(api),
  });
  const found = { cpuMs: [] as number[], storedKb: [] as number[] };
  for (let n = 0; n < world.samples(4); n++) {
    const before = await now();
    await sleep(world.quick ? 1000 : WINDOW_S * 1000);
    const after = await now();
    const seconds = (after.atMs - before.atMs) / 1000;
    found.cpuMs.push((after.cpuMs - before.cpuMs) / seconds);
    found.storedKb.push((after.storedKb - before.storedKb) / seconds);
  }
  return found;
}
