import { createHash } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { expect } from "vitest";
import {
  Batch,
  DerivedJob,
  SubmittedBatch,
  SubmittedJob,
} from "../../../shared/wire/submissions.ts";
import {
  type Api,
  apiKeys,
  body,
  expectFault,
  maxQueueSize,
  on,
  problemOf,
  type Row,
  test,
} from "./api.ts";

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

async function submit(
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

async function members(api: Api, id: string): Promise<string[]> {
  const page = body(await api.get(`/executions?batch_id=${id}&limit=1000`));
  return (page as { items: { execution_id: string }[] }).items.map((one) => one.execution_id);
}

/** A job of a batch. Jobs that a row leaves in the queue are cancelled after it. */
const job = (n: number, fields: object = {}) => ({ code: `print(${n})`, ...fields });

export const batchRows: Row[] = [
  test("POST /execute/batch queues every job, answers each in its place, and its records name the batch", async (api) => {
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
  }),
  test("A job of a batch is stored as the same job submitted alone: exact code and input, hashes, defaults", async (api) => {
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
  }),
  ...on(queue, [
    test("Jobs of a batch are accepted in order while the queue has room; the rest are 503 each", async (api) => {
      const batch = await submit(
        api,
        Array.from({ length: maxQueueSize + 2 }, (_, n) => job(n)),
      );
      const expected = [...Array.from({ length: maxQueueSize }, () => "queued"), 503, 503];
      expect(batch.jobs.map(({ status }) => status)).toEqual(expected);
      expect(batch.jobs.map(({ queue_position }) => queue_position).slice(0, 3)).toEqual([1, 2, 3]);
      expect((await read(api, batch.id)).total).toBe(maxQueueSize);
    }),
    test("An atomic batch for which the queue has no room is 503, and stores nothing", async (api) => {
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
    }),
    test("An atomic batch that the queue can never hold is 422", async (api) => {
      const stored = await api.newest();
      const jobs = Array.from({ length: maxQueueSize + 1 }, (_, n) => job(n));
      const refused = await api.post("/execute/batch", { jobs, atomic: true });
      expect(problemOf(refused)).toMatchObject({ status: 422, code: "batch_too_large" });
      expect(await api.newest()).toEqual(stored);
    }),
  ]),
  test("An atomic batch with a job that is 400 or 422 is refused as such, with the job's path", async (api) => {
    const stored = await api.newest();
    for (const [status, bad, path] of [
      [400, { code: "" }, "jobs.1.code"],
      [422, { code: "1", timeout: 80_000 }, "jobs.1.timeout"],
    ] as const) {
      const refused = await api.post("/execute/batch", { jobs: [job(0), bad], atomic: true });
      expect(refused.status).toBe(status);
      expect(problemOf(refused).errors?.map((fault) => fault.path)).toEqual([path]);
    }
    expect(await api.newest()).toEqual(stored);
  }),
  test("POST /batches/{id}/cancel ends queued members, asks the agents of running ones, and may be repeated", async (api) => {
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
  }),
  ...on(long, [
    test("A batch of 1,000 jobs is accepted whole; 1,001 are 400", async (api) => {
      const jobs = Array.from({ length: 1000 }, (_, n) => job(n, { metadata: { n: String(n) } }));
      const batch = await submit(api, jobs, { atomic: true });
      expect(new Set(batch.jobs.map(({ job_id }) => job_id)).size).toBe(1000);
      expect(batch.jobs.every(({ status }) => status === "queued")).toBe(true);
      expect(await members(api, batch.id)).toHaveLength(1000);
      const cancelled = await api.post(`/batches/${batch.id}/cancel`);
      expect(body(cancelled)).toMatchObject({ finished: true, counts: { cancelled: 1000 } });
      expectFault(await api.post("/execute/batch", { jobs: [...jobs, job(1000)] }), "jobs");
    }),
  ]),
  test("A batch without jobs, with jobs that are none or with an unknown field is 400 at that path", async (api) => {
    for (const [path, fields] of [
      ["jobs", { jobs: [] }],
      ["jobs", { jobs: {} }],
      ["jobs.0", { jobs: [1] }],
      ["code", { jobs: [job(0)], code: "1" }],
    ] as const) {
      expectFault(await api.post("/execute/batch", fields), path);
    }
  }),
  ...on(queue, [
    test("A batch over max_batch_bytes is 413", async (api) => {
      const large = JSON.stringify({ jobs: [job(0, { input_data: { x: "x".repeat(300_000) } })] });
      const refused = await api.post("/execute/batch", large);
      expect(refused.status).toBe(413);
      expect(problemOf(refused).detail).toContain("max_batch_bytes");
    }),
  ]),
];

export const batchKeyRows: Row[] = [
  test("The idempotency keys of a batch's jobs work as alone: jobs that existed before are shown, not members", async (api) => {
    const run = crypto.randomUUID();
    const keyed = (n: number, fields: object = {}) =>
      job(n, { idempotency_key: `${run} ${n}`, ...fields });
    const [before, removed] = [await api.submit(keyed(0)), await api.submit(keyed(1))];
    await api.post(`/jobs/${removed.job_id}/cancel`);
    await api.send("DELETE", `/executions/${removed.job_id}`);
    const jobs = [keyed(0), keyed(1), keyed(2), keyed(2), keyed(2, { timeout: 9 }), keyed(3)];
    const batch = await submit(api, [...jobs, keyed(0, { timeout: 9 })]);
    const [a, b, c, same, other, d, changed] = batch.jobs;
    expect(a).toMatchObject({ job_id: before.job_id, status: "queued" });
    expect(b).toMatchObject({ code: "conflict", existing_job_id: removed.job_id });
    expect(same).toEqual(c);
    expect(other).toMatchObject({ code: "conflict", existing_job_id: c!.job_id });
    expect(changed).toMatchObject({ code: "conflict", existing_job_id: before.job_id });
    expect(await members(api, batch.id)).toEqual([d!.job_id, c!.job_id]);
    expect((await api.submit(keyed(2))).job_id).toBe(c!.job_id);
    const atomic = await submit(api, [keyed(0), keyed(4)], { atomic: true });
    expect(await members(api, atomic.id)).toEqual([atomic.jobs[1]!.job_id]);
    const refused = await api.post("/execute/batch", {
      jobs: [keyed(5), keyed(0, { timeout: 9 })],
      atomic: true,
    });
    expect(problemOf(refused)).toMatchObject({ status: 409, existing_job_id: before.job_id });
  }),
  test("A repeat of a batch with its idempotency key gets the same batch; with another payload it is 409", async (api) => {
    const jobs = [job(0), { code: "" }, job(2)];
    const header = { "Idempotency-Key": crypto.randomUUID() };
    const first = await submit(api, jobs, {}, header);
    await api.post(`/jobs/${first.jobs[0]!.job_id}/cancel`);
    const stored = await api.newest();
    const again = await submit(api, jobs, { idempotency_key: header["Idempotency-Key"] });
    expect(again.id).toBe(first.id);
    expect(again.jobs.map(({ job_id, status }) => [job_id, status])).toEqual([
      [first.jobs[0]!.job_id, "cancelled"],
      [undefined, 400],
      [first.jobs[2]!.job_id, "queued"],
    ]);
    for (const other of [{ jobs: [job(0)] }, { jobs, atomic: true }, { jobs: [...jobs, job(3)] }]) {
      const refused = await api.post("/execute/batch", other, header);
      expect([400, 409]).toContain(refused.status);
    }
    expect((await api.post("/execute/batch", { jobs: [job(0)] }, header)).status).toBe(409);
    expect(await api.newest()).toEqual(stored);
  }),
];

export const idempotencyRows: Row[] = [
  test("An idempotency key gives the same job for the same payload, in its current state", async (api) => {
    const fields = { idempotency_key: "k-1", input_data: { a: 1, b: { c: [1, 2], d: 2.0 } } };
    const first = await api.submit(fields);
    const again = await api.submit(fields);
    expect(again).toEqual({ ...first, correlation_id: again.correlation_id });
    const agent = api.agent();
    const job = await agent.takeJob();
    expect(await api.submit(fields)).toMatchObject({
      job_id: first.job_id,
      status: "running",
      queue_position: 0,
    });
    await agent.result(job.lease_id);
    expect(await api.submit(fields)).toMatchObject({ job_id: first.job_id, status: "succeeded" });
  }),
  test("Payloads that differ only in the order of keys or in explicit defaults are equal", async (api) => {
    const first = await api.post(
      "/execute/async",
      '{"code":"1","input_data":{"a":1,"b":{"c":1,"d":2}},"idempotency_key":"k-2"}',
    );
    const again = await api.post(
      "/execute/async",
      ' {"idempotency_key":"k-2", "requirements":[], "input_data":{"b":{"d":2,"c":1},"a":1}, "code":"1", "job_type":"default"}',
    );
    expect(again.status).toBe(202);
    expect(body(again)).toMatchObject({ job_id: SubmittedJob.parse(body(first)).job_id });
  }),
  ...on("with a long queue", [
    test("An input of 200,000 values is compared, hashed and given to the code like a small one", async (api) => {
      const members = Array.from(
        { length: 50_000 },
        (_, n) => `"k${(n * 7919) % 50_021}":[${n}.0]`,
      );
      const send = (input: string) =>
        api.post(
          "/execute/async",
          `{"code":"1","input_data":{${input}},"idempotency_key":"k-many"}`,
        );
      const first = SubmittedJob.parse(body(await send(members.join(","))));
      const again = await send(` ${members.toReversed().join(" ,\n")}`);
      expect(body(again)).toMatchObject({ job_id: first.job_id });
      expect((await send(members.slice(1).join(","))).status).toBe(409);
      const text = `{${members.join(",")}}`;
      const artifact = await api.get(`/jobs/${first.job_id}/artifacts/_input.json`);
      expect(artifact.text === text).toBe(true);
      const record = body(await api.get(`/executions/${first.job_id}?view=full`));
      const hash = createHash("sha256").update(text).digest("hex");
      expect(record).toMatchObject({ input_hash: hash });
      expect((await api.agent().takeJob()).input_json === text).toBe(true);
    }),
  ]),
  test("An idempotency key with another payload is 409, whatever field differs", async (api) => {
    const fields = { idempotency_key: "k-3", input_data: { a: 1 } };
    const { job_id } = await api.submit(fields);
    for (const other of [
      { code: "print(2)" },
      { input_data: { a: 2 } },
      { input_data: { a: [1] } },
      { timeout: 7 },
      { startup_timeout: 11 },
      { job_type: "ml" },
      { requirements: ["numpy"] },
      { stdin: "tea" },
      { args: ["a"] },
      { metadata: { a: "b" } },
      { run_at: "2026-01-01T00:00:00Z" },
      { queue_timeout: 9 },
      { max_attempts: 1 },
      { language: "bash" },
      { results: true },
    ]) {
      const reply = await api.post("/execute/async", { code: "print(1)", ...fields, ...other });
      expect([other, reply.status]).toEqual([other, 409]);
      expect(problemOf(reply).existing_job_id).toBe(job_id);
    }
  }),
  test("POST /execute with the idempotency key of a running job waits for that job, and later gets its stored result", async (api) => {
    const agent = await api.connected();
    const request = { code: "print(1)", idempotency_key: crypto.randomUUID() };
    const first = api.post("/execute", request);
    const { lease_id, execution_id } = await agent.takeJob();
    const joined = api.post("/execute", request);
    expect(await api.submit(request)).toMatchObject({ job_id: execution_id, status: "running" });
    await agent.result(lease_id, { stdout_base64: btoa("once\n") });
    const stored = api.post("/execute", request);
    for (const reply of await Promise.all([first, joined, stored])) {
      expect(reply.status).toBe(200);
      expect(body(reply)).toMatchObject({ job_id: execution_id, stdout: "once\n" });
    }
    const other = await api.post("/execute", { ...request, code: "print(2)" });
    expect([other.status, problemOf(other).existing_job_id]).toEqual([409, execution_id]);
  }),
  test("POST /execute with the idempotency key of a queued asynchronous job waits for that job", async (api) => {
    const agent = await api.connected();
    const request = { code: "print(1)", idempotency_key: crypto.randomUUID() };
    const { job_id } = await api.submit(request);
    const reply = api.post("/execute", request);
    const { lease_id } = await agent.takeJob();
    await agent.result(lease_id);
    expect(body(await reply)).toMatchObject({ success: true, job_id });
  }),
  test("The header Idempotency-Key is the same as the field; two that differ are 400", async (api) => {
    const header = { "Idempotency-Key": "header 1" };
    const send = (fields: object, headers: Record<string, string>) =>
      api.post("/execute/async", { code: "print(1)", ...fields }, headers);
    const first = SubmittedJob.parse(body(await send({}, header)));
    const field = { idempotency_key: "header 1" };
    for (const again of [
      await send({}, header),
      await send(field, {}),
      await send(field, header),
    ]) {
      expect(SubmittedJob.parse(body(again)).job_id).toBe(first.job_id);
    }
    expect((await api.record(first.job_id)).idempotency_key).toBe("header 1");
    const stored = await api.newest();
    expectFault(await send({ idempotency_key: "header 2" }, header), "idempotency_key");
    expectFault(await send({}, { "Idempotency-Key": "x".repeat(256) }), "Idempotency-Key");
    expect(await api.newest()).toEqual(stored);
  }),
  ...["rerun", "fork"].map((what) =>
    test(`A ${what} takes an idempotency key, and a repeat gives the same job`, async (api) => {
      const [parent, other] = [await api.submit(), await api.submit()];
      const send = (id: string, fields: object = {}) =>
        api.post(
          `/jobs/${id}/${what}`,
          { ...(what === "fork" && { code: "2" }), ...fields },
          { "Idempotency-Key": `${what}-1` },
        );
      const first = await send(parent.job_id);
      expect(first.status).toBe(202);
      const { job_id, parent_execution_id } = DerivedJob.parse(body(first));
      expect(parent_execution_id).toBe(parent.job_id);
      expect(body(await send(parent.job_id))).toMatchObject({ job_id });
      for (const refused of [
        await send(parent.job_id, { timeout: 7 }),
        await send(other.job_id),
        await api.post("/execute/async", { code: "2", idempotency_key: `${what}-1` }),
      ]) {
        expect([refused.status, problemOf(refused).existing_job_id]).toEqual([409, job_id]);
      }
    }),
  ),
  ...on("with keys", [
    test("Idempotency keys belong to a tenant: with another API key of the tenant, a repeat finds its job or batch", async (api) => {
      for (const [path, request, id] of [
        ["/execute/async", { code: "1" }, "job_id"],
        ["/execute/batch", { jobs: [{ code: "1" }] }, "batch_id"],
      ] as const) {
        const ids = [];
        for (const apiKey of apiKeys) {
          const headers = { "Idempotency-Key": "shared", "X-API-Key": apiKey };
          const reply = await api.post(path, request, headers);
          expect(reply.status).toBe(202);
          ids.push((body(reply) as Record<string, string>)[id]);
        }
        expect(new Set(ids).size).toBe(1);
      }
    }),
  ]),
  test("100 equal submissions at once with one key give one job", async (api) => {
    const before = await api.newest();
    const jobs = await Promise.all(
      Array.from({ length: 100 }, () => insist(api, { idempotency_key: "k-4" })),
    );
    const ids = new Set(jobs.map(({ job_id }) => job_id));
    expect([...ids]).toEqual([expect.any(String)]);
    const stored = await api.newest();
    expect(stored.filter((id) => !before.includes(id))).toEqual([...ids]);
  }),
];

/** Submits a job, again as long as the database of a busy machine is out of reach. */
async function insist(api: Api, fields: object): Promise<SubmittedJob> {
  for (;;) {
    const reply = await api.post("/execute/async", { code: "print(1)", ...fields });
    if (reply.status === 503) {
      await sleep(1000 * Number(reply.headers.get("Retry-After")));
      continue;
    }
    expect(reply.status).toBe(202);
    return SubmittedJob.parse(body(reply));
  }
}
