import { randomInt, randomUUID } from "node:crypto";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { jobContainersOf } from "../../agent/sandbox/testing/raw-engine.ts";
import { reservePort } from "../../api/testing/reserve-port.ts";
import { type NodeProcess, startNodeIn } from "../../api/testing/start-node.ts";
import { startS3 } from "../../api/testing/start-s3.ts";
import { startSqld } from "../../api/testing/start-sqld.ts";
import { random } from "../soak/random.ts";
import type { Acknowledged } from "../testing/ledger.ts";
import { startRoundRobin } from "../testing/round-robin.ts";
import { needs } from "../testing/needs.ts";
import type { Json } from "../testing/service-calls.ts";
import { startTestServiceOn, type TestAgent, type TestService } from "../testing/test-service.ts";
import { shortLeases } from "./short-leases.ts";

const [clients, jobsOfEach, kills, slots] = [4, 7, 5, 2];

/** Its artifact and its stream name one run of the code. */
const code = `
import json, uuid
run = f'{json.load(open("/input/data.json"))["mark"]} {uuid.uuid4()}'
open("run.txt", "w").write(run)
print(run, end="")
`;
import { tempFolder } from "../../shared/testing/temp-folder.ts";
import { jsonRequest } from "../command/json-request.ts";

/** A process that is killed, and started anew as it was. */
interface Part {
  readonly name: string;
  /** Resolves once it serves or polls. */
  start(): Promise<void>;
  kill(): Promise<void>;
}

function apiPart(folder: string, port: number, vars: Record<string, string>): Part {
  let api: NodeProcess | undefined;
  return {
    name: `API at ${port}`,
    start: async () => {
      api = await startNodeIn(folder, { AIRLOCK_PORT: String(port), ...vars });
    },
    kill: async () => api?.close(),
  };
}

function agentPart(name: string, service: TestService): Part {
  let agent: TestAgent | undefined;
  return {
    name,
    start: async () => {
      agent = await service.startAgent(name);
    },
    kill: async () => {
      agent?.process.kill("SIGKILL");
      await agent?.exit;
    },
  };
}

type Answer = { readonly status: number; readonly text: string };

/** Asks until there is an answer other than 503, whole: whoever is to give it may be killed meanwhile. */
async function insist(url: string, path: string, body?: Json): Promise<Answer> {
  for (;;) {
    const answer = await ask(url + path, body).catch(() => undefined);
    if (answer && answer.status !== 503) return answer;
    await sleep(20);
  }
}

async function ask(url: string, body?: Json): Promise<Answer> {
  const reply = await fetch(url, body && jsonRequest("POST", body));
  return { status: reply.status, text: await reply.text() };
}

test(
  "nothing is lost and nothing ends twice when any of three APIs on one database, or of the agents, is killed at any time",
  needs("swift"),
  async () => {
    await using ends = new AsyncDisposableStack();
    const seed = Number(process.env["TEST_SEED"] ?? randomInt(2 ** 31));
    process.stdout.write(`TEST_SEED=${seed}\n`);
    const { between, pick, next } = random(seed);
    const folder = tempFolder();

    const sqld = await startSqld(join(folder, "db"));
    ends.defer(() => sqld.close());
    const s3 = await startS3();
    ends.defer(() => s3.close());
    const ports = [await reservePort(), await reservePort(), await reservePort()];
    const { url } = ends.use(await startRoundRobin(ports));
    const apis: Part[] = [];
    async function startApis(vars: Record<string, string>) {
      apis.push(...ports.map((port, i) => apiPart(join(folder, `api-${i}`), port, vars)));
      await Promise.all(apis.map((api) => api.start()));
      const close = () => Promise.all(apis.map((api) => api.kill()));
      return { url, databaseUrl: sqld.url, close };
    }
    const service = ends.use(
      await startTestServiceOn(startApis, {
        api: {
          ...s3.vars,
          ...shortLeases,
          AIRLOCK_DATABASE_URL: sqld.url,
          // Longer than a busy machine takes to start an API: only deaths end leases.
          AIRLOCK_LEASE_TTL_S: "120",
        },
        agents: { AIRLOCK_MAX_WORKERS: String(slots) },
      }),
    );
    const agents = ["agent-a", "agent-b"].map((name) => agentPart(name, service));
    await Promise.all(agents.map((agent) => agent.start()));

    const acknowledged: Acknowledged[] = [];
    const deaths = new Map<string, number>();
    let dueAt = 2;
    let restarting = Promise.resolve();

    /** Kills somebody after each few jobs; one at a time, but without waiting for anybody's work. */
    function noteJob(): void {
      const isDue = acknowledged.length >= dueAt && deaths.size < kills;
      if (!isDue) return;
      dueAt = acknowledged.length + Math.round(between(1, 4));
      const part = next() < 0.7 ? pick(apis) : pick(agents);
      deaths.set(`${deaths.size + 1}: ${part.name}`, acknowledged.length);
      const afterMs = between(0, 300);
      restarting = restarting.then(async () => {
        await sleep(afterMs);
        await part.kill();
        await part.start();
      });
    }

    /** Synchronous where it is the third: without an answer nobody knows whether it was taken. */
    async function client(which: number): Promise<void> {
      for (let n = 0; n < jobsOfEach; n++) {
        const mark = `${which}-${n}`;
        const asked = { code, input_data: { mark }, startup_timeout: 600 };
        const isSync = n % 3 === 2;
        const own = isSync ? {} : { idempotency_key: randomUUID() };
        const path = isSync ? "/execute" : "/execute/async";
        const answer = await insist(url, path, { ...asked, ...own });
        expect(answer.status).toBe(isSync ? 200 : 202);
        const { job_id: id, stdout } = JSON.parse(answer.text) as {
          job_id: string;
          stdout?: string;
        };
        acknowledged.push({ id, ends: ["succeeded"], ...(stdout !== undefined && { stdout }) });
        noteJob();
      }
    }
    await Promise.all(Array.from({ length: clients }, (_, which) => client(which)));
    await restarting;
    expect(deaths.size).toBe(kills);

    const open = "SELECT id FROM executions WHERE status IN ('queued', 'running')";
    const left = async () => (await service.db.execute(open)).rows;
    await expect.poll(left, { timeout: 120_000, interval: 200 }).toEqual([]);
    const ledger = await service.ledger(acknowledged);
    expect(ledger.faults, `seed ${seed}, ${[...deaths.keys()].join(", ")}`).toEqual([]);
    const odd: string[] = [];
    let failed = 0;
    for (const { id } of acknowledged) {
      const record = JSON.parse((await insist(url, `/executions/${id}`)).text) as Json;
      const artifact = await insist(url, `/jobs/${id}/artifacts/run.txt`);
      const hasSucceeded = record["status"] === "succeeded";
      const isRight = hasSucceeded ? artifact.text === record["stdout"] : artifact.status === 404;
      if (!isRight) odd.push(`${id} ${artifact.status} ${artifact.text}`);
      if (!hasSucceeded) failed++;
    }
    expect(odd).toEqual([]);
    // The death of an agent takes an attempt from each job that it runs, and a job has two.
    const agentDeaths = [...deaths.keys()].filter((name) => !name.includes("API")).length;
    const ended = JSON.stringify([...ledger.ended]);
    expect(failed, `ends: ${ended}`).toBeLessThanOrEqual((agentDeaths * slots) / 2);
    const leftovers = () =>
      Promise.all(agents.map(({ name }) => jobContainersOf(`${service.name}-${name}`)));
    await expect.poll(leftovers, { timeout: 120_000, interval: 500 }).toEqual([[], []]);
  },
);
