import { expect } from "vitest";
import { Batch, SubmittedBatch } from "../../../shared/wire/client/batch.ts";
import { type Api, body, expectFault, problemOf } from "./api.ts";
import { each, type Row } from "./row.ts";
import { maxQueueSize } from "./servers.ts";

const queue = "with a short queue";
const long = "with a long queue";

interface Answer {
  job_id?: string;
  status: string | number;
  code?: string;
  existing_job_id?: string;
  queue_position?: number;
  errors?: { path: string }[];
}

export async function submit(
  api: Api,
  jobs: object[],
  fields: object = {},
  headers: Record<string, string> = {},
): Promise<{ id: string; jobs: Answer[] }> {
  const reply = await api.post("/execute/batch", { jobs, ...fields }, headers);
  expect(reply.status).toBe(202);
  const { batch_id } = SubmittedBatch.parse(body(reply));
  expect(reply.headers.get("Location")).toBe(`/batches/${batch_id}`);
  return { id: batch_id, jobs: (body(reply) as { jobs: Answer[] }).jobs };
}

async function read(api: Api, id: string): Promise<Batch> {
  return Batch.parse(body(await api.get(`/batches/${id}`)));
}

export async function members(api: Api, id: string): Promise<string[]> {
  const page = body(await api.get(`/executions?batch_id=${id}&limit=1000`));
  return (page as { items: { execution_id: string }[] }).items.map((one) => one.execution_id);
}

/** A job of a batch. Jobs that a row leaves in the queue are cancelled after it. */
export const job = (n: number, fields: object = {}) => ({ code: `print(${n})`, ...fields });

export const batchRows: Row[] = [
  {
    rule: "POST /execute/batch queues every job, answers each in its place, and its records name the batch",
    async check(api) {
      const metadata = { part: "1" };
      const batch = await submit(api, [
        job(0),
        job(1, { metadata, input_data: { exact: 1.5 }, timeout: 7, job_type: "ml" }),
        { code: "" },
        job(3, { timeout: "soon" }),
        job(4, { job_type: "nowhere" }),
        job(5),
      ]);
      expect(batch.jobs.map(({ status }) => status)).toEqual([
        "queued",
        "queued",
        400,
        400,
        400,
        "queued",
      ]);
      expect(batch.jobs.map(({ errors }) => errors?.[0]?.path)).toEqual([
        undefined,
        undefined,
        "code",
        "timeout",
        "job_type",
        undefined,
      ]);
      const ids = batch.jobs.flatMap(({ job_id }) => job_id ?? []);
      expect(await members(api, batch.id)).toEqual(ids.toReversed());
      expect(await read(api, batch.id)).toMatchObject({
        total: 3,
        finished: false,
        counts: { queued: 3, running: 0, cancelled: 0 },
      });
      const record = await api.record(ids[1]!);
      expect(record).toMatchObject({ batch_id: batch.id, metadata, job_type: "ml" });
      const agent = api.agent();
      const taken = [await agent.takeJob(), await agent.takeJob(), await agent.takeJob()];
      expect(taken.map(({ execution_id }) => execution_id)).toEqual(ids);
      expect(taken[1]).toMatchObject({
        code: "print(1)",
        input_json: '{"exact":1.5}',
        timeout_s: 7,
        job_type: { name: "ml" },
      });
      await agent.result(taken[0]!.lease_id);
      expect((await read(api, batch.id)).counts).toMatchObject({ running: 2, succeeded: 1 });
    },
  },
  {
    rule: "A job of a batch is stored as the same job submitted alone: exact code and input, hashes, defaults",
    async check(api) {
      const text = `{"code":"# \\u00e9 \\ud83d\\ude00\\r\\n\\tprint(1)","input_data":{"a":1.0,"b":12345678901234567890,"c":"\\ud800"}}`;
      const alone = body(await api.post("/execute/async", text)) as { job_id: string };
      const reply = await api.post("/execute/batch", `{"jobs":[${text}]}`);
      const [one] = (body(reply) as { jobs: Answer[] }).jobs;
      const bare = async (id: string) => {
        const { execution_id: _, created_at: __, batch_id: ___, ...rest } = await api.record(id);
        return rest;
      };
      expect(await bare(one!.job_id!)).toEqual(await bare(alone.job_id));
      const files = async (id: string) => [
        (await api.get(`/jobs/${id}/artifacts/_code.py`)).text,
        (await api.get(`/jobs/${id}/artifacts/_input.json`)).text,
      ];
      expect(await files(one!.job_id!)).toEqual(await files(alone.job_id));
    },
  },
  {
    rule: "Jobs of a batch are accepted in order while the queue has room; the rest are 503 each",
    server: queue,
    async check(api) {
      const batch = await submit(
        api,
        Array.from({ length: maxQueueSize + 2 }, (_, n) => job(n)),
      );
      const expected = [...Array.from({ length: maxQueueSize }, () => "queued"), 503, 503];
      expect(batch.jobs.map(({ status }) => status)).toEqual(expected);
      expect(batch.jobs.map(({ queue_position }) => queue_position).slice(0, 3)).toEqual([1, 2, 3]);
      expect((await read(api, batch.id)).total).toBe(maxQueueSize);
    },
  },
  {
    rule: "An atomic batch for which the queue has no room is 503, and stores nothing",
    server: queue,
    async check(api) {
      await api.submit();
      const stored = await api.newest();
      const jobs = Array.from({ length: maxQueueSize }, (_, n) => job(n));
      const key = { idempotency_key: crypto.randomUUID() };
      const refused = await api.post("/execute/batch", { jobs, atomic: true, ...key });
      expect(problemOf(refused)).toMatchObject({ status: 503, code: "unavailable" });
      expect(refused.headers.get("Retry-After")).toBe("5");
      expect(await api.newest()).toEqual(stored);
      // Its key is still free.
      await submit(api, jobs.slice(1), { atomic: true, ...key });
    },
  },
  {
    rule: "An atomic batch that the queue can never hold is 422",
    server: queue,
    async check(api) {
      const stored = await api.newest();
      const jobs = Array.from({ length: maxQueueSize + 1 }, (_, n) => job(n));
      const refused = await api.post("/execute/batch", { jobs, atomic: true });
      expect(problemOf(refused)).toMatchObject({ status: 422, code: "batch_too_large" });
      expect(await api.newest()).toEqual(stored);
    },
  },
  ...each(
    [
      [400, { code: "" }, "jobs.1.code"],
      [422, { code: "1", timeout: 80_000 }, "jobs.1.timeout"],
    ] as const,
    ([status]) => `An atomic batch with a job that is ${status} is ${status} with the job's path`,
    async (api, [status, bad, path]) => {
      const stored = await api.newest();
      const refused = await api.post("/execute/batch", { jobs: [job(0), bad], atomic: true });
      expect(refused.status).toBe(status);
      expect(problemOf(refused).errors?.map((fault) => fault.path)).toEqual([path]);
      expect(await api.newest()).toEqual(stored);
    },
  ),
  {
    rule: "POST /batches/{id}/cancel ends queued members, asks the agents of running ones, and may be repeated",
    async check(api) {
      const other = await api.submit();
      const agent = api.agent();
      expect((await agent.takeJob()).execution_id).toBe(other.job_id);
      const batch = await submit(api, [job(0), job(1), job(2)]);
      const { lease_id, execution_id } = await agent.takeJob();
      const cancel = () => api.post(`/batches/${batch.id}/cancel`);
      const reply = await cancel();
      expect(reply.status).toBe(200);
      const counts = { queued: 0, running: 1, cancelled: 2 };
      expect(body(reply)).toMatchObject({ total: 3, finished: false, counts });
      expect((await agent.renew()).cancel).toEqual([lease_id]);
      const error = { type: "cancelled", message: "Cancelled.", phase: "execution" } as const;
      await agent.result(lease_id, { status: "cancelled", exit_code: 143, error });
      expect(body(await cancel())).toMatchObject({ finished: true, counts: { cancelled: 3 } });
      expect(await api.record(execution_id)).toMatchObject({ status: "cancelled" });
      expect(await api.record(batch.jobs[1]!.job_id!)).toMatchObject({
        status: "cancelled",
        error: { type: "cancelled", phase: "startup" },
      });
      expect(await api.job(other.job_id)).toMatchObject({ status: "running" });
      expect(await api.job(other.job_id)).not.toHaveProperty("cancel_requested");
    },
  },
  {
    rule: "A batch of 1,000 jobs is accepted whole; 1,001 are 400",
    server: long,
    async check(api) {
      const jobs = Array.from({ length: 1000 }, (_, n) => job(n, { metadata: { n: String(n) } }));
      const batch = await submit(api, jobs, { atomic: true });
      expect(new Set(batch.jobs.map(({ job_id }) => job_id)).size).toBe(1000);
      expect(batch.jobs.every(({ status }) => status === "queued")).toBe(true);
      expect(await members(api, batch.id)).toHaveLength(1000);
      const cancelled = await api.post(`/batches/${batch.id}/cancel`);
      expect(body(cancelled)).toMatchObject({ finished: true, counts: { cancelled: 1000 } });
      expectFault(await api.post("/execute/batch", { jobs: [...jobs, job(1000)] }), "jobs");
    },
  },
  ...each(
    [
      ["no jobs", { jobs: [] }, "jobs"],
      ["jobs that are no list", { jobs: {} }, "jobs"],
      ["a job that is no object", { jobs: [1] }, "jobs.0"],
      ["an unknown field", { jobs: [job(0)], code: "1" }, "code"],
    ] as const,
    ([what]) => `A batch with ${what} is 400 at that path`,
    async (api, [, fields, path]) => expectFault(await api.post("/execute/batch", fields), path),
  ),
  {
    rule: "A batch over max_batch_bytes is 413",
    server: queue,
    async check(api) {
      const large = JSON.stringify({ jobs: [job(0, { input_data: { x: "x".repeat(300_000) } })] });
      const refused = await api.post("/execute/batch", large);
      expect(refused.status).toBe(413);
      expect(problemOf(refused).detail).toContain("max_batch_bytes");
    },
  },
  {
    rule: "A batch id that names nothing is 404",
    async check(api) {
      for (const id of ["019aa5f0-6c1e-7c3a-8d53-2f1f3a6b9c10", "none"]) {
        expect((await api.get(`/batches/${id}`)).status).toBe(404);
        expect((await api.post(`/batches/${id}/cancel`)).status).toBe(404);
      }
    },
  },
];
