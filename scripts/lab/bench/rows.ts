import { setTimeout as sleep } from "node:timers/promises";
import { connect } from "../../../clients/typescript/src/index.ts";
import {
  interleave,
  rate,
  type Row,
  type Series,
  type Side,
  timed,
  whenSettled,
} from "./measure.ts";
import { bytes } from "./bytes-row.ts";
import { fleet } from "./fleet-row.ts";
import { remote } from "./remote-row.ts";
import { calls, cpu, creates, forked, idle, memory, preload } from "./sandbox-rows.ts";
import {
  AGENTS,
  anchors,
  API_CLIENTS,
  API_SLOTS,
  type ApiService,
  callSession,
  coldCycle,
  dockerRun,
  endSession,
  hasDockerCommand,
  HELLO,
  helloJob,
  openSession,
  repeatedly,
  runJobs,
  type Service,
  startApi,
  type World,
} from "./world.ts";

const CLIENTS = 8;
/** So many clients give the highest rate on two cores. */
const OTHERS = 4;

const throughput: Row = {
  name: "throughput",
  what: `single-use executions per second for as long as ${CLIENTS} clients ask for more; ${OTHERS} at once of what they are set against`,
  goal: "forked ≥ 5 × the bare engine, ≥ 0.8 × bwrap … python3 where bubblewrap is installed; containers ≥ 0.9 × the bare engine",
  measure: async (world) => {
    const { engine, dockerHost, image } = world;
    const start = (container_backend: string) =>
      world.startService({ config: { container_backend, max_queue_size: 1000 } });
    await using forked = await start("zygote");
    await using plain = await start("engine");
    for (const service of [forked, plain]) await service.warmUp(world.samples(200));
    const span = { leadInMs: world.quick ? 0 : 1500, forMs: world.quick ? 500 : 5000 };
    const side = (name: string, count: number, task: () => Promise<unknown>): Side => ({
      name,
      once: async () => {
        await plain.settled();
        return rate(count, span, task);
      },
    });
    const sides = [
      side("Airlock, forked", CLIENTS, () => forked.execute(HELLO)),
      side("Airlock, containers", CLIENTS, () => plain.execute(HELLO)),
      side("bare engine", OTHERS, () => coldCycle(engine, image)),
      ...(hasDockerCommand ? [side("docker run", OTHERS, () => dockerRun(dockerHost, image))] : []),
      ...anchors.map(({ name, run }) => side(name, OTHERS, run)),
    ];
    return await interleave("/s", sides, { warmUp: 0, rounds: world.samples(3) });
  },
  reaches: (of, has) =>
    of("Airlock, forked").p50 >= 5 * of("bare engine").p50 &&
    of("Airlock, containers").p50 >= 0.9 * of("bare engine").p50 &&
    (!has("bwrap") || of("Airlock, forked").p50 >= 0.8 * of("bwrap").p50),
};

const helloCall = { code: HELLO };

const sessions: Row = {
  name: "sessions",
  what: "beside a hello alone, in forks and in containers: a call in a ready session, a call that starts the interpreter anew, and a new session until it is ready",
  goal: "forked: call ≤ 0.5 × hello, session ≤ 1.3 × hello, restart ≤ call + 10 ms",
  // One after the other: what a container leaves to do would disturb the next fork.
  measure: async (world) => [
    ...(await measure(world, "forked", "zygote")),
    ...(await measure(world, "containers", "engine")),
  ],
  reaches: (of) =>
    of("forked: call").p50 <= 0.5 * of("forked: hello").p50 &&
    of("forked: new session").p50 <= 1.3 * of("forked: hello").p50 &&
    of("forked: restart").p50 <= of("forked: call").p50 + 10,
};

async function measure(world: World, name: string, container_backend: string): Promise<Series[]> {
  await using service = await world.startService({ config: { container_backend } });
  await service.warmUp(world.samples(300));
  const session = await openSession(service);
  for (let n = 0; n < world.samples(100); n++) await callSession(service, session, helloCall);
  const opened: string[] = [];
  const side = (what: string, run: () => Promise<unknown>): Side => {
    const rested = whenSettled(service, `${name}: ${what}`, run);
    return {
      ...rested,
      once: async () => {
        for (const id of opened.splice(0)) await endSession(service, id);
        return rested.once();
      },
    };
  };
  const sides = [
    side("hello", () => service.execute(HELLO)),
    side("call", () => callSession(service, session, helloCall)),
    side("restart and call", () => callSession(service, session, { ...helloCall, restart: true })),
    side("new session", async () => opened.push(await openSession(service))),
  ];
  return await interleave("ms", sides, { warmUp: world.samples(3), rounds: world.samples(40) });
}

const SLOTS = 2;
const JOB_MS = 100;
const job = { code: `import time; time.sleep(${JOB_MS / 1000})` };
const LOADS = [10, 100];
/**
 * Its turn is the second at the latest: before it are the job that runs in its slot, and two of each other tenant
 * for all slots.
 */
const JOBS_BEFORE = 1 + (2 * LOADS.length) / SLOTS;
/** What the machine adds to each of those. */
const OVERHEAD_MS = 50;
const LOOK_MS = 20;

const turns: Row = {
  name: "turns",
  what: `one job of a tenant, alone and beside ${LOADS.join(" and ")} waiting jobs of two others; ${SLOTS} slots, each job sleeps ${JOB_MS} ms`,
  goal: `beside them p50 ≤ alone + ${JOBS_BEFORE} jobs, each ${JOB_MS + OVERHEAD_MS} ms at most`,
  measure: async (world) => {
    await using service = await world.startService({
      config: { max_workers: SLOTS, max_queue_size: 1000 },
    });
    const light = await tenantOf(service, "light");
    const heavy = await Promise.all(
      LOADS.map(async (load) => ({ load, client: await tenantOf(service, `load-${load}`) })),
    );
    const runLight = () => timed(() => light.api.execute({ executeRequest: job }));
    const beside = async (): Promise<number> => {
      const loads = heavy.map(async ({ load, client }) => {
        const jobs = Array.from({ length: load }, () => job);
        const { batch_id } = await client.api.executeBatch({ batchRequest: { jobs } });
        return async () => {
          await client.batches.cancel(batch_id);
          while ((await client.batches.get(batch_id)).counts.running !== 0) await sleep(LOOK_MS);
        };
      });
      const ends = await Promise.all(loads);
      const tookMs = await runLight();
      for (const end of ends) await end();
      return tookMs;
    };
    await service.warmUp(world.samples(50));
    const sides = [
      whenSettled(service, "alone", () => light.api.execute({ executeRequest: job })),
      { name: `beside ${LOADS.join(" and ")}`, once: beside },
    ];
    return await interleave("ms", sides, { warmUp: world.samples(2), rounds: world.samples(20) });
  },
  reaches: (of) => of("beside").p50 <= of("alone").p50 + JOBS_BEFORE * (JOB_MS + OVERHEAD_MS),
};

/** Without keys, everybody may name a tenant. */
async function tenantOf({ url }: Service, tenant: string) {
  await connect({ url }).tenants.setLimits(tenant, {});
  return connect({ url, tenant });
}

/** Prints how long each call of the tool takes, in ms. */
const callingProgram = (calls: number): string => `
import time
for _ in range(${calls}):
    began = time.perf_counter()
    answer()
    print((time.perf_counter() - began) * 1000)
`;
const answer = { name: "answer", run: () => null };

const tools: Row = {
  name: "tools",
  what: "a call of the caller's tool, from the code to the client that answers at once and back, beside a hello",
  goal: "p50 ≤ 40 ms",
  measure: async (world) => {
    await using service = await world.startService({ config: { container_backend: "zygote" } });
    const client = connect({ url: service.url });
    const round = async (calls: number): Promise<number[]> => {
      const record = await client.run(callingProgram(calls), { tools: [answer] });
      const times = record.stdout.trim().split("\n").map(Number);
      if (times.length !== calls) throw new Error(`the job ended as ${JSON.stringify(record)}`);
      return times;
    };
    await service.warmUp(world.samples(100));
    await round(world.samples(20));
    const [hello, trips]: [number[], number[]] = [[], []];
    for (let n = 0; n < world.samples(10); n++) {
      await service.settled();
      hello.push(await timed(() => service.execute(HELLO)));
      trips.push(...(await round(world.samples(15))));
    }
    return [
      { name: "hello", unit: "ms", samples: hello },
      { name: "call of a tool", unit: "ms", samples: trips },
    ];
  },
  reaches: (of) => of("call of a tool").p50 <= 40,
};

/** Lines are far enough apart that none waits for the one before it. */
const shortestPauseS = 0.15;
const longestPauseS = 0.35;

/** Each line is the time at which it was printed. */
const printingProgram = (lines: number): string => `
import random, time
for _ in range(${lines}):
    time.sleep(random.uniform(${shortestPauseS}, ${longestPauseS}))
    print(time.time() * 1000, flush=True)
`;

const live: Row = {
  name: "live",
  what: "a running job's print to the client that follows it by Server-Sent Events",
  goal: "p50 ≤ 40 ms",
  measure: async (world) => {
    await using service = await world.startService();
    await printTimes(service.url, world.samples(20));
    const samples = await printTimes(service.url, world.samples(150));
    return [{ name: "print to client", unit: "ms", samples }];
  },
  reaches: (of) => of("print to client").p50 <= 40,
};

/** Milliseconds from each print of a running job to the client that follows it. */
async function printTimes(url: string, lines: number): Promise<number[]> {
  const client = connect({ url });
  const { job_id } = await client.submit({ code: printingProgram(lines), timeout: 30 + lines });
  const times: number[] = [];
  let begun = "";
  for await (const { event, data } of client.stream(job_id)) {
    const now = performance.timeOrigin + performance.now();
    if (event === "stdout") {
      const whole = (begun + data.text).split("\n");
      begun = whole.pop() ?? "";
      times.push(...whole.map((line) => now - Number(line)));
    }
    if (event === "end" && data.status !== "succeeded") {
      throw new Error(`the job ended as ${JSON.stringify(data)}`);
    }
  }
  if (times.length !== lines) throw new Error(`${times.length} of ${lines} lines came`);
  return times;
}

const SUBMITTERS = 64;
const BATCH = 1000;
/** Pause of the other client between two of its requests. */
const OTHERS_PAUSE_MS = 2;

/** Each on an API of its own; the worst stall is of each. */
const parts = [measureJobs, measureSubmits, measureBatches, measureLongQueue];
/** Batches that fill the long queue. */
const LONG = 200;
/** Of these, so many stay. */
const STAY = 10;

const api: Row = {
  name: "api",
  what: `the API alone, durable: ${API_CLIENTS} clients and ${AGENTS} agents of ${API_SLOTS} slots without an engine that submit, lease and end jobs; submits over ${SUBMITTERS} connections; batches of ${BATCH.toLocaleString("en")} jobs while another client reads; lists, metrics and jobs with ${(LONG * BATCH).toLocaleString("en")} queued, which come in batches and are cancelled by batch`,
  goal: "≥ 1,000 jobs/s; ≥ 2,500 submits/s, p99 ≤ 60 ms; ≥ 8,000 jobs/s in batches, no other request over 50 ms; no stall over 50 ms; with the long queue ≥ 0.9 × the jobs/s, lists and metrics p50 ≤ 10 ms",
  measure: async ({ quick }) => {
    const series: Series[] = [];
    const stalls: number[] = [];
    for (const part of parts) {
      await using service = await startApi();
      series.push(...(await part(service, quick)));
      stalls.push(await service.worstStallMs());
    }
    return [...series, { name: "worst stall", unit: "ms", samples: stalls }];
  },
  reaches: (of) =>
    of("jobs").p50 >= 1000 &&
    of("submits").p50 >= 2500 &&
    of("latency").p99 <= 60 &&
    of("batched").p50 >= 8000 &&
    of("worst stall").max <= 50 &&
    of("long queue: stall").max <= 50 &&
    of("long queue: jobs").p50 >= 0.9 * of("jobs").p50 &&
    Object.keys(reads).every((name) => of(name).p50 <= 10) &&
    Object.keys(paths).every((name) => of(name).max <= 50),
};

/** Rate of each round and CPU time of each of its tasks, after one round that is not counted. */
async function rounds(api: ApiService, count: number, most: number, run: () => Promise<unknown>) {
  const [rates, cpu]: [number[], number[]] = [[], []];
  await run();
  await api.worstStallMs();
  for (let round = 0; round < most; round++) {
    const cpuBefore = api.cpuMs();
    rates.push((count / (await timed(run))) * 1000);
    cpu.push((api.cpuMs() - cpuBefore) / count);
  }
  return { rates, cpu };
}

async function measureJobs(api: ApiService, quick: boolean): Promise<Series[]> {
  const count = quick ? 64 : 4000;
  const { rates, cpu } = await rounds(api, count, quick ? 1 : 4, () => runJobs(api, count));
  return [
    { name: "jobs", unit: "/s", samples: rates },
    { name: "CPU of each job", unit: "ms", samples: cpu },
  ];
}

async function measureSubmits(api: ApiService, quick: boolean): Promise<Series[]> {
  const count = quick ? SUBMITTERS : 4000;
  const latencies: number[] = [];
  const submit = async (n: number): Promise<void> => {
    const job = { ...helloJob, input_data: { n } };
    latencies.push(await timed(() => api.send("POST", "/execute/async", job, n)));
  };
  const { rates, cpu } = await rounds(api, count, quick ? 1 : 5, () =>
    repeatedly(count, SUBMITTERS, submit),
  );
  return [
    { name: "submits", unit: "/s", samples: rates },
    { name: "latency", unit: "ms", samples: latencies.slice(count) },
    { name: "CPU of each submit", unit: "ms", samples: cpu },
  ];
}

async function measureBatches(api: ApiService, quick: boolean): Promise<Series[]> {
  const count = quick ? 1 : 12;
  for (let n = 0; n < count; n++) await submitBatch(api, n);
  const rates: number[] = [];
  await api.worstStallMs();
  const others = startOthers(api);
  for (let n = 0; n < count; n++) {
    rates.push((BATCH / (await timed(() => submitBatch(api, n)))) * 1000);
  }
  return [{ name: "batched jobs", unit: "/s", samples: rates }, ...(await others.stop())];
}

/** What a console and Prometheus ask for. `time` is that of the last submission. */
const reads = {
  "long queue: list of what waits": () => "/executions?status=queued",
  "long queue: list by time": (time: string) => `/executions?created_after=${time}`,
  "long queue: metrics": () => "/metrics",
};

async function measureLongQueue(api: ApiService, quick: boolean): Promise<Series[]> {
  const [count, stay] = quick ? [2, 1] : [LONG, STAY];
  const batches: string[] = [];
  const stalls: number[] = [];
  await api.worstStallMs();
  for (let n = 0; n < count; n++) batches.push(await submitBatch(api, n));
  stalls.push(await api.worstStallMs());
  const { text } = await api.send("POST", "/execute/async", helloJob);
  const { created_at } = JSON.parse(text) as { created_at: string };
  const sides = Object.entries(reads).map(([name, path]) => ({
    name,
    once: () => timed(() => api.send("GET", path(created_at))),
  }));
  const times = await interleave("ms", sides, { warmUp: 2, rounds: quick ? 1 : 20 });
  const [jobs] = await measureJobs(api, quick);
  await api.worstStallMs();
  for (const id of batches.slice(stay)) await api.send("POST", `/batches/${id}/cancel`);
  stalls.push(await api.worstStallMs());
  return [
    ...times,
    { ...jobs!, name: "long queue: jobs" },
    { name: "long queue: stall of batches and cancels", unit: "ms", samples: stalls },
  ];
}

/** Returns its id. */
async function submitBatch(api: ApiService, batch: number): Promise<string> {
  const jobs = Array.from({ length: BATCH }, (_, n) => ({
    ...helloJob,
    input_data: { n: batch * BATCH + n },
  }));
  const { text } = await api.send("POST", "/execute/batch", { jobs }, 1);
  const answer = JSON.parse(text) as { batch_id: string; jobs: { job_id?: string }[] };
  if (answer.jobs.length !== BATCH || !answer.jobs.every(({ job_id }) => job_id)) {
    throw new Error(`not all jobs of a batch were accepted: ${text.slice(0, 500)}`);
  }
  return answer.batch_id;
}

const paths = {
  "another's GET /health": () => "/health",
  "another's GET /jobs/{id}": (id: string) => `/jobs/${id}`,
};

/** Another client, which reads in turns until it is stopped. */
function startOthers(api: ApiService): { stop: () => Promise<Series[]> } {
  const stopping = new AbortController();
  const all = Object.entries(paths).map(([name, path]) => ({
    name,
    path,
    samples: [] as number[],
  }));
  const read = async (): Promise<void> => {
    const { text } = await api.send("POST", "/execute/async", { code: "pass" });
    const { job_id } = JSON.parse(text) as { job_id: string };
    while (!stopping.signal.aborted) {
      for (const { path, samples } of all) {
        samples.push(await timed(() => api.send("GET", path(job_id))));
        await sleep(OTHERS_PAUSE_MS);
      }
    }
  };
  const reading = read();
  // `stop` throws its error.
  reading.catch(() => {});
  return {
    stop: async () => {
      stopping.abort();
      await reading;
      return all.map(({ name, samples }) => ({ name, unit: "ms", samples }));
    },
  };
}

/** In the order in which they are measured and shown. */
export const rows: readonly Row[] = [
  forked,
  throughput,
  preload,
  cpu,
  calls,
  api,
  fleet,
  remote,
  memory,
  live,
  turns,
  sessions,
  idle,
  creates,
  tools,
  bytes,
];
