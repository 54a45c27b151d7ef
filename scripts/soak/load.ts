import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { jsonRequest } from "../command/json-request.ts";
import type { Acknowledged } from "../testing/ledger.ts";
import { longJob, makeJob, type SoakJob } from "./jobs.ts";
import { random, type Random } from "./random.ts";

export type Counts = Map<string, number>;

export type Load = {
  /** Every submission that was answered with a job id. */
  readonly acknowledged: Acknowledged[];
  /** Answers so far, by what was asked and how it went. */
  readonly counts: Counts;
  /** What an answer said that must not be. */
  readonly faults: string[];
  /** Submits nothing more; resolves once every client has its last answer. */
  readonly stop: () => Promise<void>;
};

export type LoadOptions = {
  readonly urls: readonly string[];
  readonly key: string;
  readonly seed: number;
  readonly clients: number;
};

type Answer = { readonly status: number; readonly json: Record<string, unknown> };

const pauseMs = 300;
const patienceMs = 60_000;

const jobIdOf = (answer: Answer | undefined) => answer?.json["job_id"] as string | undefined;
const request = ({ code, input, timeout }: SoakJob) => ({ code, input_data: input, timeout });

/** Clients that submit jobs of all kinds, one after the other, each to either API. */
export function startLoad({ urls, key, seed, clients }: LoadOptions): Load {
  const acknowledged: Acknowledged[] = [];
  const counts: Counts = new Map();
  const faults: string[] = [];
  const end = new AbortController();
  const count = (what: string): void => void counts.set(what, (counts.get(what) ?? 0) + 1);

  /** Undefined where no answer came: whether the service took it is unknown. */
  async function send(
    { pick }: Random,
    method: string,
    path: string,
    body?: object,
    patience = patienceMs,
  ): Promise<Answer | undefined> {
    try {
      const response = await fetch(pick(urls) + path, {
        ...jsonRequest(method, body, { "X-API-Key": key }),
        signal: AbortSignal.timeout(patience),
      });
      const json = (await response.json()) as Answer["json"];
      if (response.status >= 500 && response.status !== 503) {
        faults.push(`${method} ${path} answered ${response.status}: ${JSON.stringify(json)}`);
      }
      return { status: response.status, json };
    } catch {
      return undefined;
    }
  }

  function acknowledge(id: string, job: SoakJob, ends = job.ends): void {
    acknowledged.push({ id, ends, ...(job.stdout && { stdout: job.stdout }) });
  }

  async function runSync(own: Random, job: SoakJob): Promise<void> {
    const answer = await send(own, "POST", "/execute", request(job));
    count(`sync ${answer?.status ?? "unanswered"}`);
    if (answer?.status !== 200) return;
    const { success, stdout } = answer.json;
    const id = jobIdOf(answer)!;
    // Where the API stops meanwhile, the job is cancelled.
    acknowledge(id, job, success ? ["succeeded"] : [...job.ends, "cancelled/cancelled"]);
    if (success && job.stdout !== undefined && stdout !== job.stdout) {
      faults.push(`${id} was answered with ${JSON.stringify(stdout)}`);
    }
  }

  /** Submits until it is acknowledged, under one key, so that it can be told again and again. */
  async function runAsync(own: Random, job: SoakJob): Promise<string | undefined> {
    const body = { ...request(job), idempotency_key: randomUUID() };
    for (;;) {
      const repeats = own.next() < 0.2 ? 2 : 1;
      const answers = await Promise.all(
        Array.from({ length: repeats }, () => send(own, "POST", "/execute/async", body)),
      );
      for (const answer of answers) count(`async ${answer?.status ?? "unanswered"}`);
      const ids = new Set(answers.flatMap((answer) => jobIdOf(answer) ?? []));
      if (ids.size > 1) faults.push(`one key, two jobs: ${[...ids].join(" and ")}`);
      const [id] = ids;
      if (id !== undefined) {
        acknowledge(id, job);
        return id;
      }
      if (end.signal.aborted) return undefined;
      await rest();
    }
  }

  async function follow(own: Random, id: string): Promise<void> {
    const answer = await send(own, "GET", `/jobs/${id}/result?wait=true&timeout=20&view=full`);
    count(`result ${answer?.status ?? "unanswered"}`);
    if (answer?.status === 404) faults.push(`${id} was acknowledged and is not found`);
  }

  async function runCancelled(own: Random): Promise<void> {
    const id = await runAsync(own, longJob(randomUUID()));
    if (id === undefined) return;
    await sleep(own.between(0, 2000));
    // The code ends by itself within a minute where no cancel arrives.
    for (let tries = 0; tries < 5; tries++) {
      const answer = await send(own, "POST", `/jobs/${id}/cancel`);
      count(`cancel ${answer?.status ?? "unanswered"}`);
      if (answer && answer.status !== 503) return;
    }
  }

  async function runAgain(own: Random): Promise<void> {
    const parent = own.pick(acknowledged);
    if (!parent || parent.ends.includes("cancelled/cancelled")) return;
    const answer = await send(own, "POST", `/jobs/${parent.id}/rerun`);
    count(`rerun ${answer?.status ?? "unanswered"}`);
    if (answer?.status === 202) {
      acknowledged.push({ ...parent, id: jobIdOf(answer)! });
    }
  }

  const rest = () => sleep(pauseMs, undefined, { signal: end.signal }).catch(() => {});

  async function work(client: number): Promise<void> {
    const own = random(seed + client + 1);
    while (!end.signal.aborted) {
      const job = makeJob(own, randomUUID());
      const choice = own.next();
      if (choice < 0.3) await runSync(own, job);
      else if (choice < 0.35) await send(own, "POST", "/execute", request(job), 400);
      else if (choice < 0.42) await runCancelled(own);
      else if (choice < 0.47) await runAgain(own);
      else {
        const id = await runAsync(own, job);
        if (id !== undefined && own.next() < 0.5) await follow(own, id);
      }
      await rest();
    }
  }

  const working = Promise.all(Array.from({ length: clients }, (_, i) => work(i)));
  return {
    acknowledged,
    counts,
    faults,
    stop: async () => {
      end.abort();
      await working;
    },
  };
}
