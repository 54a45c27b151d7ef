import { mkdtempSync, rmSync } from "node:fs";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { startSqld } from "../../../api/testing/start-stores.ts";
import { listen } from "../../../shared/testing/http.ts";
import { interleave, rate, type Row, type Series, timed } from "./measure.ts";
import {
  type ApiService,
  cpuMsOf,
  HELLO,
  repeatedly,
  runJobs,
  startApi,
  type World,
} from "./world.ts";

const CLIENTS = 8;
/** As between two towns. */
const FAR_MS = 20;
/** Longer than a process expects more news after some. */
const REST_AFTER_MS = 12_000;

export const remote: Row = {
  name: "remote",
  what: `with a libSQL server in place of a file: hello alone, also with ${FAR_MS} ms for each call, and ${CLIENTS} at once; calls of the server; the API alone with 1 and 2 processes`,
  goal: `hello ≤ 60 ms, with ${FAR_MS} ms a call ≤ 200 ms; ${CLIENTS} at once ≥ 40/s; ≥ 300 jobs/s, CPU of each with 2 processes ≤ 1.1 × with 1; calls of a hello ≤ 10 alone and ≤ 4 at once, ≤ 4 a second at rest`,
  measure: async (world) => [
    ...(await measureHello(world)),
    ...(await measureApi("file", 1, undefined, world.quick)),
    ...(await withServer((server) => measureApi("server", 1, server, world.quick))),
    ...(await withServer((server) => measureApi("server", 2, server, world.quick))),
  ],
  reaches: (of) =>
    of("server: hello").p50 <= 60 &&
    of("far server: hello").p50 <= 200 &&
    of("server: 8 at once").p50 >= 40 &&
    of("server: calls of a hello alone").p50 <= 10 &&
    of("server: calls of a hello, 8 at once").p50 <= 4 &&
    of("server: calls a second at rest").p50 <= 4 &&
    of("server, 1 process: jobs").p50 >= 300 &&
    of("server, 2 processes: CPU").p50 <= 1.1 * of("server, 1 process: CPU").p50,
};

async function measureHello(world: World): Promise<Series[]> {
  return withServer(async (near) =>
    withServer(async (far) => {
      await using nearProxy = await startProxy(near.url, 0);
      await using farProxy = await startProxy(far.url, FAR_MS);
      const start = (config: Record<string, string>) => world.startService({ config });
      await using onFile = await start({});
      await using onNear = await start({ database_url: nearProxy.url });
      await using onFar = await start({ database_url: farProxy.url });
      const services = { file: onFile, server: onNear, "far server": onFar };
      for (const service of Object.values(services)) await service.warmUp(world.samples(50));

      const alone = await interleave(
        "ms",
        Object.entries(services).map(([name, service]) => ({
          name: `${name}: hello`,
          once: () => timed(() => service.execute(HELLO)),
        })),
        { warmUp: world.samples(3), rounds: world.samples(30) },
      );
      const span = { leadInMs: world.quick ? 0 : 1000, forMs: world.quick ? 500 : 4000 };
      const atOnce = await interleave(
        "/s",
        [["file", onFile] as const, ["server", onNear] as const].map(([name, service]) => ({
          name: `${name}: ${CLIENTS} at once`,
          once: () => rate(CLIENTS, span, () => service.execute(HELLO)),
        })),
        { warmUp: 0, rounds: world.samples(3) },
      );

      const server = onNear;
      await server.settled();
      await sleep(world.quick ? 0 : REST_AFTER_MS);
      const atRest = await nearProxy.callsDuring(() => sleep(world.quick ? 1000 : 10_000));
      const perSecond = atRest / (world.quick ? 1 : 10);
      const count = world.samples(40);
      /** Without what the service asks at rest for as long. */
      const callsOf = async (run: () => Promise<unknown>): Promise<number> => {
        let tookMs = 0;
        const calls = await nearProxy.callsDuring(async () => (tookMs = await timed(run)));
        return (calls - (perSecond * tookMs) / 1000) / count;
      };
      const hellos = (atOnce: number) => () =>
        repeatedly(count, atOnce, () => server.execute(HELLO));
      const callsAlone = await callsOf(hellos(1));
      const callsAtOnce = await callsOf(hellos(CLIENTS));
      return [
        ...alone,
        ...atOnce,
        calls("of a hello alone", callsAlone),
        calls(`of a hello, ${CLIENTS} at once`, callsAtOnce),
        calls("a second at rest", perSecond),
      ];
    }),
  );
}

const calls = (name: string, sample: number): Series => ({
  name: `server: calls ${name}`,
  unit: "each",
  samples: [sample],
});

type Server = Awaited<ReturnType<typeof startSqld>>;

async function measureApi(
  name: string,
  processes: number,
  server: Server | undefined,
  quick: boolean,
): Promise<Series[]> {
  await using ends = new AsyncDisposableStack();
  const apis: ApiService[] = [];
  for (let n = 0; n < processes; n++) {
    apis.push(ends.use(await startApi(server && { AIRLOCK_DATABASE_URL: server.url })));
  }
  let sent = 0;
  const send: ApiService["send"] = (...given) => apis[sent++ % processes]!.send(...given);
  const cpuMs = (): number =>
    apis.reduce((sum, api) => sum + api.cpuMs(), server ? cpuMsOf(server.pid) : 0);
  const count = quick ? 32 : 1000;
  await runJobs({ send }, count);
  const [rates, cpu]: [number[], number[]] = [[], []];
  for (let round = 0; round < (quick ? 1 : 3); round++) {
    const before = cpuMs();
    rates.push((count / (await timed(() => runJobs({ send }, count)))) * 1000);
    cpu.push((cpuMs() - before) / count);
  }
  const side = `${name}, ${processes} ${processes === 1 ? "process" : "processes"}`;
  return [
    { name: `${side}: jobs`, unit: "/s", samples: rates },
    { name: `${side}: CPU of each job`, unit: "ms", samples: cpu },
  ];
}

async function withServer<T>(work: (server: Server) => Promise<T>): Promise<T> {
  const folder = mkdtempSync(join(tmpdir(), "airlock-bench-"));
  const server = await startSqld(folder);
  try {
    return await work(server);
  } finally {
    await server.close();
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Passes connections on, holds back what clients send for a while, and counts their requests. */
async function startProxy(target: string, delayMs: number) {
  const { hostname, port } = new URL(target);
  let calls = 0;
  const proxy = createServer((client) => {
    const server = connect(Number(port), hostname);
    for (const socket of [client, server]) {
      socket.setNoDelay().on("error", () => socket.destroy());
    }
    client.on("data", (bytes: Buffer) => {
      calls += bytes.toString("latin1").split(/^POST \/v\d/m).length - 1;
      if (delayMs === 0) server.write(bytes);
      else setTimeout(() => server.write(bytes), delayMs);
    });
    client.on("close", () => server.destroy());
    server.pipe(client);
  });
  const callsDuring = async (work: () => Promise<unknown>): Promise<number> => {
    const before = calls;
    await work();
    return calls - before;
  };
  return { ...(await listen(proxy)), callsDuring };
}
