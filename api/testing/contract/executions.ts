import { expect } from "vitest";
import type { ExecutionErrorType } from "../../../shared/wire/errors.ts";
import { ExecutionPage } from "../../../shared/wire/executions.ts";
import type { ResultReport } from "../../../shared/wire/leases.ts";
import {
  type DeadLetter,
  DeadLetterDeleted,
  DeadLetterPage,
  DeadLetterStats,
  DerivedJob,
  type SubmittedJob,
} from "../../../shared/wire/submissions.ts";
import type { Reply } from "../scripted-agent.ts";
import {
  type Api,
  body,
  expectFault,
  failedJob,
  maxTimeoutS,
  nobody,
  problemOf,
  type Row,
  test,
  working,
} from "./api.ts";
import { uploaded } from "./files.ts";

async function page(api: Api, query: string): Promise<ExecutionPage> {
  const reply = await api.get(`/executions?${query}`);
  expect(reply.status).toBe(200);
  expect(reply.headers.get("Content-Type")).toBe("application/json");
  return ExecutionPage.strict().parse(body(reply));
}

const ids = ({ items }: ExecutionPage): string[] => items.map(({ execution_id }) => execution_id);

export const executionRows: Row[] = [
  test("GET /executions lists records in pages, newest first", async (api) => {
    const jobs = [await api.submit(), await api.submit(), await api.submit()];
    const newest = jobs.map(({ job_id }) => job_id).toReversed();
    const all = await page(api, "limit=1000");
    expect(ids(all).slice(0, 3)).toEqual(newest);
    expect(all).toMatchObject({ limit: 1000, offset: 0, has_more: false, count: all.items.length });

    const first = await page(api, "limit=2");
    expect(first).toMatchObject({ limit: 2, offset: 0, has_more: true, count: 2 });
    expect(ids(first)).toEqual(newest.slice(0, 2));
    const next = await page(api, "limit=1&offset=2");
    expect(next).toMatchObject({ limit: 1, offset: 2, count: 1 });
    expect(ids(next)).toEqual(newest.slice(2));

    const count = all.items.length;
    expect(await page(api, `limit=1&offset=${count - 1}`)).toMatchObject({
      has_more: false,
      count: 1,
    });
    expect(await page(api, `limit=1&offset=${count}`)).toMatchObject({
      items: [],
      has_more: false,
      count: 0,
    });
    expect(await page(api, "")).toMatchObject({ limit: 100, offset: 0 });
  }),
  test("GET /executions filters by status, by job type, and by both", async (api) => {
    const plain = await api.submit();
    const ml = await api.submit({ job_type: "ml" });
    const agent = api.agent();
    const { lease_id } = await agent.takeJob();
    expect(ids(await page(api, "status=queued"))).toEqual([ml.job_id]);
    expect(ids(await page(api, "status=running"))).toEqual([plain.job_id]);
    expect(ids(await page(api, "status=queued&job_type=ml"))).toEqual([ml.job_id]);
    expect(ids(await page(api, "status=queued&job_type=default"))).toEqual([]);
    expect(ids(await page(api, "job_type=ml&limit=1"))).toEqual([ml.job_id]);
    expect(ids(await page(api, "job_type=unknown"))).toEqual([]);
    await agent.result(lease_id);
    expect(ids(await page(api, "status=succeeded&limit=1"))).toEqual([plain.job_id]);
  }),
  test("GET /executions filters by several statuses in order of submission, and by a text in the error", async (api) => {
    const agent = api.agent();
    // Other rows have left executions here.
    const metadata = { row: "several" };
    const several = "metadata=row:several&status=oom&status=queued&status=failed";
    const ended = async (status: "failed" | "oom", message: string): Promise<string> => {
      const { job_id } = await api.submit({ metadata });
      const error = {
        type: status === "oom" ? status : "value_error",
        phase: "execution",
      } as const;
      const { lease_id } = await agent.takeJob();
      await agent.result(lease_id, { status, exit_code: 1, error: { ...error, message } });
      return job_id;
    };
    const old = await ended("failed", "ValueError: 100% of Row 17");
    const full = await ended("oom", "out of memory");
    const { job_id: waiting } = await api.submit({ metadata });
    expect(ids(await page(api, several))).toEqual([waiting, full, old]);
    expect(ids(await page(api, `${several}&limit=1&offset=1`))).toEqual([full]);
    expect(ids(await page(api, `${several}&before=${full}`))).toEqual([old]);
    expect(ids(await page(api, "metadata=row:several&error=row%2017"))).toEqual([old]);
    expect(ids(await page(api, "metadata=row:several&error=0%25"))).toEqual([old]);
    expect(ids(await page(api, "metadata=row:several&error=OOM"))).toEqual([full]);
    expect(ids(await page(api, "metadata=row:several&error=row&status=oom"))).toEqual([]);
  }),
  test("GET /executions?view=full adds the extended fields to each record", async (api) => {
    const { job_id } = await api.submit();
    const [full] = (await page(api, "limit=1&view=full")).items;
    expect(full).toEqual(await api.record(job_id));
    const [plain] = (await page(api, "limit=1")).items;
    expect(plain).toEqual(await api.record(job_id, ""));
    expect(plain).not.toHaveProperty("code_hash");
  }),
  test("view=all adds the number of attempts and the rest of the submission to each record", async (api) => {
    const given = { timeout: 7, startup_timeout: 20 };
    const { job_id, correlation_id } = await api.submit(given);
    const submitted = { ...given, correlation_id, mode: "async", requirements: [] };
    const full = await api.record(job_id);
    expect(full).not.toHaveProperty("attempt");
    expect(full).not.toHaveProperty("attempts");
    const all = { ...full, ...submitted, attempt: 0, attempts: [] };
    expect(await api.record(job_id, "?view=all")).toEqual(all);
    await api.agent().takeJob();
    const [taken] = (await page(api, "limit=1&view=all")).items;
    expect(taken).toMatchObject({ ...submitted, attempt: 1 });
    const narrowed = await api.get("/executions?limit=1&fields=attempt,mode");
    expect(JSON.parse(narrowed.text)).toMatchObject({
      items: [{ execution_id: job_id, attempt: 1, mode: "async" }],
    });
  }),
  test("GET /executions/{id} returns the record even if the job has not ended", async (api) => {
    const { job_id, created_at } = await api.submit();
    expect(await api.record(job_id, "")).toEqual({
      execution_id: job_id,
      status: "queued",
      job_type: "default",
      job_version: "latest",
      created_at,
      started_at: null,
      ended_at: null,
      duration_ms: null,
      exit_code: null,
      stdout: "",
      stderr: "",
      output: null,
      error: null,
      timing: null,
    });
  }),
];

const listedIds = async (api: Api, query: string): Promise<string[]> => ids(await page(api, query));

const newYear = (year: number): string => `${year}-01-01T00:00:00%2B01:00`;

const mark = (): string => crypto.randomUUID();

export const listRows: Row[] = [
  test("The metadata of a submission is in its record, and is kept by rerun and fork unless they bring their own", async (api) => {
    const metadata = { order: "4711", "team.name": "Ünïcode: 100 %" };
    const { job_id } = await api.submit({ metadata });
    expect((await api.record(job_id, "")).metadata).toEqual(metadata);
    expect((await api.record(job_id)).metadata).toEqual(metadata);
    const derive = async (what: string, fields: object) => {
      const reply = await api.post(`/jobs/${job_id}/${what}`, fields);
      return (await api.record((body(reply) as { job_id: string }).job_id)).metadata;
    };
    expect(await derive("rerun", {})).toEqual(metadata);
    expect(await derive("fork", { code: "2", metadata: { a: "b" } })).toEqual({ a: "b" });
    const plain = await api.submit();
    expect(await api.record(plain.job_id, "")).not.toHaveProperty("metadata");
    expect(await api.record(plain.job_id)).not.toHaveProperty("metadata");
  }),
  test("GET /executions filters by metadata: a pair, or all of several, with other filters", async (api) => {
    const run = mark();
    const [a, b] = [
      await api.submit({ metadata: { run, part: "a:1" } }),
      await api.submit({ metadata: { run, part: "b" }, job_type: "ml" }),
    ];
    const query = `metadata=run:${run}`;
    expect(await listedIds(api, query)).toEqual([b.job_id, a.job_id]);
    expect(await listedIds(api, `${query}&metadata=part:a:1`)).toEqual([a.job_id]);
    expect(await listedIds(api, `${query}&metadata=part:c`)).toEqual([]);
    expect(await listedIds(api, `${query}&job_type=ml&status=queued`)).toEqual([b.job_id]);
    expect(await listedIds(api, `${query}&limit=1&before=${b.job_id}`)).toEqual([a.job_id]);
    expect(await listedIds(api, `metadata=run:`)).toEqual([]);
    expectFault(await api.get("/executions?metadata=run"), "metadata.0");
  }),
  test("GET /executions filters by parent", async (api) => {
    const { job_id } = await api.submit();
    const child = body(await api.post(`/jobs/${job_id}/rerun`)) as { job_id: string };
    expect(await listedIds(api, `parent_execution_id=${job_id}`)).toEqual([child.job_id]);
    expect(await listedIds(api, `parent_execution_id=${child.job_id}`)).toEqual([]);
  }),
  test("GET /executions filters by time: created_after is inclusive, created_before is not", async (api) => {
    const run = mark();
    const jobs = [];
    for (let n = 0; n < 3; n++) {
      const job = await api.submit({ metadata: { run } });
      jobs.push(job);
      while (Date.now() <= Date.parse(job.created_at)) await api.get("/health");
    }
    const [first, second, third] = jobs;
    const time = (job = first) => encodeURIComponent(job!.created_at);
    const query = `metadata=run:${run}`;
    const all = [third!.job_id, second!.job_id, first!.job_id];
    expect(await listedIds(api, `${query}&created_after=${time(first)}`)).toEqual(all);
    expect(await listedIds(api, `${query}&created_after=${time(second)}`)).toEqual(all.slice(0, 2));
    expect(await listedIds(api, `${query}&created_before=${time(third)}`)).toEqual(all.slice(1));
    const between = `created_after=${time(second)}&created_before=${time(third)}`;
    expect(await listedIds(api, between)).toEqual([second!.job_id]);
    expect(await listedIds(api, `created_after=${newYear(2999)}`)).toEqual([]);
    expect(await listedIds(api, `created_before=${newYear(1999)}`)).toEqual([]);
    for (const wrong of ["yesterday", "2026-11-21", "2026-11-21T00:00:00"]) {
      const reply = await api.get(`/executions?created_after=${wrong}`);
      expectFault(reply, "created_after");
      expect(problemOf(reply).detail).toContain("must be a time with its zone, such as");
    }
  }),
  test("A cursor neither repeats nor leaves out executions while new ones arrive, even if its own is removed", async (api) => {
    const run = mark();
    const submit = () => api.submit({ metadata: { run } });
    const jobs = [];
    for (let n = 0; n < 5; n++) jobs.push((await submit()).job_id);
    const query = `metadata=run:${run}&limit=2`;
    const first = await page(api, query);
    expect(first.has_more).toBe(true);
    await submit();
    const last = first.items[1]!.execution_id;
    await api.post(`/jobs/${last}/cancel`);
    const next = await listedIds(api, `${query}&before=${last}`);
    expect((await api.send("DELETE", `/executions/${last}`)).status).toBe(200);
    expect(await listedIds(api, `${query}&before=${last}`)).toEqual(next);
    const end = await page(api, `${query}&before=${next[1]}`);
    expect(end.has_more).toBe(false);
    const seen = [...first.items, ...end.items].map(({ execution_id }) => execution_id);
    expect([...seen.slice(0, 2), ...next, ...seen.slice(2)]).toEqual(jobs.toReversed());
    expect(await listedIds(api, `before=${jobs[0]}&metadata=run:${run}`)).toEqual([]);
  }),
  test("GET /executions?fields= narrows records to these fields and the id", async (api) => {
    const { job_id } = await api.submit({ metadata: { a: "b" } });
    const one = async (fields: string) =>
      (body(await api.get(`/executions?limit=1&fields=${fields}`)) as { items: unknown[] })
        .items[0];
    expect(await one("status")).toEqual({ execution_id: job_id, status: "queued" });
    expect(await one("metadata,stdout,code_hash")).toEqual({
      execution_id: job_id,
      metadata: { a: "b" },
      stdout: "",
      code_hash: expect.any(String) as string,
    });
    expectFault(await api.get("/executions?fields=status,secret"), "fields.1");
  }),
];

async function end(api: Api, result: Partial<ResultReport>): Promise<void> {
  const agent = api.agent();
  const { lease_id } = await agent.takeJob();
  expect((await agent.result(lease_id, result)).status).toBe(200);
}

function errorOf(type: ExecutionErrorType) {
  return { type, message: `${type}!`, phase: "execution" } as const;
}

async function deadLetterPage(api: Api, query = "limit=1000"): Promise<DeadLetterPage> {
  const reply = await api.get(`/dlq?${query}`);
  expect(reply.status).toBe(200);
  return DeadLetterPage.strict().parse(body(reply));
}

async function letterOf(api: Api, jobId: string): Promise<DeadLetter | undefined> {
  const { items } = await deadLetterPage(api);
  const found = items.filter(({ job_id }) => job_id === jobId);
  expect(found.length).toBeLessThanOrEqual(1);
  return found[0];
}

const deadLetterIds = ({ items }: DeadLetterPage): string[] => items.map(({ job_id }) => job_id);

const stats = async (api: Api): Promise<DeadLetterStats> =>
  DeadLetterStats.strict().parse(body(await api.get("/dlq/stats")));

const ends: [kept: boolean, result: Partial<ResultReport>][] = [
  [true, { status: "failed", exit_code: 1, error: errorOf("value_error") }],
  [true, { status: "timeout", exit_code: null, error: errorOf("execution_timeout") }],
  [true, { status: "oom", exit_code: 137, error: errorOf("oom") }],
  [false, { status: "cancelled", exit_code: 143, error: errorOf("cancelled") }],
  [false, {}],
];

export const deadLetterRows: Row[] = [
  test("A job that failed, timed out or ran out of memory is in the DLQ, once; one that was cancelled or succeeded is not", async (api) => {
    for (const [kept, result] of ends) {
      const { job_id } = await api.submit();
      await end(api, result);
      expect([result, (await letterOf(api, job_id)) !== undefined]).toEqual([result, kept]);
    }
  }),
  test("A failed synchronous job is not in the DLQ; its failed rerun is", async (api) => {
    const agent = await api.connected();
    const answer = api.post("/execute", { code: "1" });
    const { execution_id } = await agent.takeJob();
    await agent.close();
    await answer;
    expect(await letterOf(api, execution_id)).toBeUndefined();
    await api.post(`/jobs/${execution_id}/rerun`);
    await end(api, { status: "failed", exit_code: 1, error: errorOf("key_error") });
    expect((await deadLetterPage(api)).items[0]).toMatchObject({ error_type: "key_error" });
  }),
  test("An entry shows what was submitted, by whom, and how it ended", async (api) => {
    const before = Date.now();
    const sent = { code: "raise KeyError", input_data: { a: [1] }, job_type: "ml" };
    const headers = { "X-Correlation-ID": "letter-1" };
    const reply = await api.post("/execute/async", sent, headers);
    const { job_id } = body(reply) as { job_id: string };
    await end(api, { status: "failed", exit_code: 1, error: errorOf("key_error") });
    const letter = await letterOf(api, job_id);
    expect(letter).toEqual({
      id: letter?.id,
      job_id,
      job_data: sent,
      error_type: "key_error",
      error_message: "key_error!",
      retry_count: 0,
      created_at: letter?.created_at,
      client_ip: letter?.client_ip,
      correlation_id: "letter-1",
    });
    expect(letter?.client_ip).toMatch(/^(127\.0\.0\.1|::1)$/);
    expect(Date.parse(letter?.created_at ?? "")).toBeGreaterThanOrEqual(before);
  }),
  test("retry_count counts the attempts after the first", async (api) => {
    const { agent, job_id, lease_id } = await working(api);
    await agent.post(lease_id, "release", { error: errorOf("docker_error") });
    await end(api, { status: "failed", exit_code: 1, error: errorOf("key_error") });
    expect((await letterOf(api, job_id))?.retry_count).toBe(1);
  }),
  test("GET /dlq lists entries in pages, newest first, also behind a cursor, filtered by error_type", async (api) => {
    const jobs = [
      await failedJob(api, "name_error"),
      await failedJob(api, "json_error"),
      await failedJob(api, "name_error"),
    ];
    const newest = jobs.toReversed();
    expect(deadLetterIds(await deadLetterPage(api, "limit=3"))).toEqual(newest);
    const second = await deadLetterPage(api, "limit=1&offset=1");
    expect(deadLetterIds(second)).toEqual([jobs[1]]);
    expect(second).toMatchObject({ limit: 1, offset: 1, has_more: true, count: 1 });
    const older = await deadLetterPage(api, `limit=1&before=${second.items[0]!.id}`);
    expect(deadLetterIds(older)).toEqual([jobs[0]]);
    expect(deadLetterIds(await deadLetterPage(api, "error_type=name_error&limit=2"))).toEqual([
      jobs[2],
      jobs[0],
    ]);
    expect(deadLetterIds(await deadLetterPage(api, "error_type=bus_error"))).toEqual([]);
    const all = await deadLetterPage(api);
    expect(all).toMatchObject({ limit: 1000, offset: 0, has_more: false });
    expect(await deadLetterPage(api, "")).toMatchObject({ limit: 100, offset: 0 });
  }),
  test("GET /dlq/stats counts the entries in total and by error type", async (api) => {
    const before = await stats(api);
    await failedJob(api, "index_error");
    await failedJob(api, "index_error");
    const after = await stats(api);
    expect(after.total).toBe(before.total + 2);
    expect(after.by_error_type["index_error"]).toBe((before.by_error_type["index_error"] ?? 0) + 2);
    const { items } = await deadLetterPage(api);
    expect(items).toHaveLength(after.total);
    expect(after.oldest_created_at).toBe(items.at(-1)?.created_at);
  }),
  test("DELETE /dlq/{id} removes the entry and keeps the record", async (api) => {
    const jobId = await failedJob(api, "assertion_error");
    const { total } = await stats(api);
    const id = (await letterOf(api, jobId))?.id ?? 0;
    const reply = await api.send("DELETE", `/dlq/${id}`);
    expect(reply.status).toBe(200);
    expect(DeadLetterDeleted.strict().parse(body(reply))).toEqual({ id, deleted: true });
    expect(await letterOf(api, jobId)).toBeUndefined();
    expect((await stats(api)).total).toBe(total - 1);
    expect((await api.record(jobId)).status).toBe("failed");
    expect((await api.send("DELETE", `/dlq/${id}`)).status).toBe(404);
  }),
];

const original = {
  code: "print('original')",
  input_data: { exact: 1.5, list: [1, "ü", null] },
  job_type: "ml",
  timeout: 77,
  startup_timeout: 42,
  requirements: ["numpy==2.3.4"],
};

function derived(reply: Reply): DerivedJob {
  expect(reply.status).toBe(202);
  const job = DerivedJob.strict().parse(body(reply));
  expect(reply.headers.get("Location")).toBe(`/jobs/${job.job_id}`);
  return job;
}

/** A job and one derived from it, as the agent gets them, without their ids. */
async function leased(api: Api, ...jobs: { job_id: string }[]): Promise<object[]> {
  const agent = api.agent();
  const given = [];
  for (const { job_id } of jobs) {
    const { lease_id: _, execution_id, correlation_id: __, ...rest } = await agent.takeJob();
    expect(execution_id).toBe(job_id);
    given.push(rest);
  }
  return given;
}

async function lineage(api: Api, { job_id }: { job_id: string }): Promise<unknown[]> {
  const { parent_execution_id, relationship } = await api.record(job_id);
  return [parent_execution_id, relationship];
}

export const deriveRows: Row[] = [
  test("POST /jobs/{id}/rerun queues the same code, input, job type and limits, and names its parent", async (api) => {
    const parent = await api.submit(original);
    const job = derived(await api.post(`/jobs/${parent.job_id}/rerun`));
    expect(job).toMatchObject({
      status: "queued",
      queue_position: 2,
      parent_execution_id: parent.job_id,
      relationship: "rerun",
    });
    const [first, second] = await leased(api, parent, job);
    expect(second).toEqual(first);
    expect(await lineage(api, job)).toEqual([parent.job_id, "rerun"]);
    expect(await lineage(api, parent)).toEqual([null, null]);
    const records = [await api.record(parent.job_id), await api.record(job.job_id)];
    expect(records[1]?.code_hash).toBe(records[0]?.code_hash);
    expect(records[1]?.input_hash).toBe(records[0]?.input_hash);
  }),
  test("A rerun may have another job_type and timeout", async (api) => {
    const parent = await api.submit(original);
    const changes = { job_type: "default", timeout: 5 };
    const job = derived(await api.post(`/jobs/${parent.job_id}/rerun`, changes));
    const [, told] = await leased(api, parent, job);
    expect(told).toMatchObject({
      code: original.code,
      job_type: { name: "default" },
      timeout_s: 5,
      startup_timeout_s: 42,
    });
  }),
  test("POST /jobs/{id}/fork queues new code on the same input, and names its parent", async (api) => {
    const parent = await api.submit(original);
    const fork = { code: "print('new')", timeout: 9 };
    const job = derived(await api.post(`/jobs/${parent.job_id}/fork`, fork));
    expect(await lineage(api, job)).toEqual([parent.job_id, "fork"]);
    const [first, second] = await leased(api, parent, job);
    expect(second).toEqual({ ...first, code: fork.code, timeout_s: 9 });
  }),
  test("In a chain of reruns and forks each job names its direct parent", async (api) => {
    const root = await api.submit(original);
    const fork = derived(await api.post(`/jobs/${root.job_id}/fork`, { code: "2" }));
    const rerun = derived(await api.post(`/jobs/${fork.job_id}/rerun`, {}));
    const last = derived(await api.post(`/jobs/${rerun.job_id}/fork`, { code: "3" }));
    expect(await lineage(api, rerun)).toEqual([fork.job_id, "rerun"]);
    expect(await lineage(api, last)).toEqual([rerun.job_id, "fork"]);
    const told = await leased(api, root, fork, rerun, last);
    expect(told.map((job) => (job as { code: string }).code)).toEqual([
      original.code,
      "2",
      "2",
      "3",
    ]);
  }),
  test("A job can be derived from a queued, running, ended or synchronous job", async (api) => {
    const agent = await api.connected();
    const answer = api.post("/execute", { code: "1" });
    const { lease_id, execution_id } = await agent.takeJob();
    const running = { job_id: execution_id };
    expect(await again(api, running)).toBe(running.job_id);
    await agent.result(lease_id);
    await answer;
    expect(await again(api, running)).toBe(running.job_id);
    const queued = await api.submit();
    expect(await again(api, queued)).toBe(queued.job_id);
    await api.post(`/jobs/${queued.job_id}/cancel`);
    expect(await again(api, queued)).toBe(queued.job_id);
  }),
  test("An idempotency key is not inherited", async (api) => {
    const parent = await api.submit({ idempotency_key: "derive-1" });
    const first = derived(await api.post(`/jobs/${parent.job_id}/rerun`));
    const second = derived(await api.post(`/jobs/${parent.job_id}/rerun`));
    expect(new Set([parent.job_id, first.job_id, second.job_id]).size).toBe(3);
    expect((await api.record(first.job_id)).idempotency_key).toBeNull();
  }),
  ...["rerun", "fork"].map((what) =>
    test(`A ${what} of nothing is 404, with a wrong field 400, above max_timeout 422`, async (api) => {
      const { job_id } = await api.submit();
      const stored = await api.newest();
      const send = (id: string, fields: object) =>
        api.post(`/jobs/${id}/${what}`, { ...(what === "fork" && { code: "1" }), ...fields });
      expect((await send(nobody, {})).status).toBe(404);
      expect((await send("none", {})).status).toBe(404);
      expectFault(await send(job_id, { timeout: 0 }), "timeout");
      expectFault(await send(job_id, { job_type: "" }), "job_type");
      expectFault(await send(job_id, { job_type: "nowhere" }), "job_type");
      expectFault(await send(job_id, { input_data: {} }), "input_data");
      expectFault(await send(job_id, { idempotency_key: "" }), "idempotency_key");
      expectFault(await send(job_id, { run_at: "tomorrow" }), "run_at");
      expectFault(await send(job_id, { queue_timeout: 0 }), "queue_timeout");
      expectFault(await send(job_id, { max_attempts: 3 }), "max_attempts");
      const tooLong = await send(job_id, { timeout: maxTimeoutS + 1 });
      expect(tooLong.status).toBe(422);
      expect(problemOf(tooLong).errors?.[0]?.path).toBe("timeout");
      expect(await api.newest()).toEqual(stored);
    }),
  ),
  test("A fork without code is 400, and so is a rerun with code", async (api) => {
    const { job_id } = await api.submit();
    expectFault(await api.post(`/jobs/${job_id}/fork`, {}), "code");
    expect((await api.post(`/jobs/${job_id}/fork`)).status).toBe(400);
    expectFault(await api.post(`/jobs/${job_id}/rerun`, { code: "1" }), "code");
    expect((await api.post(`/jobs/${job_id}/rerun`, "{")).status).toBe(400);
  }),
];

/** The parent that a rerun of a job names. */
async function again(api: Api, { job_id }: Pick<SubmittedJob, "job_id">): Promise<unknown> {
  const [parent] = await lineage(api, derived(await api.post(`/jobs/${job_id}/rerun`)));
  return parent;
}

const remove = (api: Api, id: string) => api.send("DELETE", `/executions/${id}`);

export const removeRows: Row[] = [
  test("DELETE /executions/{id} removes a finished record, its artifacts and its dead letter", async (api) => {
    const { agent, job_id, lease_id } = await working(api);
    expect((await agent.upload(lease_id, "a.txt", "bytes")).status).toBe(200);
    await agent.result(lease_id, { status: "failed", exit_code: 1, error: errorOf("value_error") });
    expect((await api.get(`/jobs/${job_id}/artifacts/a.txt`)).text).toBe("bytes");

    const reply = await remove(api, job_id);
    expect([reply.status, body(reply)]).toEqual([200, { execution_id: job_id, deleted: true }]);
    for (const path of [
      `/executions/${job_id}`,
      `/jobs/${job_id}`,
      `/jobs/${job_id}/result`,
      `/jobs/${job_id}/artifacts/a.txt`,
      `/jobs/${job_id}/artifacts/_code.py`,
    ]) {
      expect((await api.get(path)).status).toBe(404);
    }
    expect(await api.newest()).not.toContain(job_id);
    expect((await api.get("/dlq?limit=1000")).text).not.toContain(job_id);
    expect((await remove(api, job_id)).status).toBe(404);
  }),
  test("Of several DELETEs of one execution, dead letter or file at once, one removes it and the others are 404", async (api) => {
    const job_id = await failedJob(api, "value_error");
    const letter = (await letterOf(api, job_id))!;
    const { file_id } = await uploaded(api, "a.txt", "a");
    for (const path of [`/dlq/${letter.id}`, `/executions/${job_id}`, `/files/${file_id}`]) {
      const replies = await Promise.all(Array.from({ length: 8 }, () => api.send("DELETE", path)));
      const statuses = replies.map(({ status }) => status).toSorted((a, b) => a - b);
      expect([path, ...statuses]).toEqual([path, 200, ...Array.from({ length: 7 }, () => 404)]);
    }
  }),
  test("DELETE /executions/{id} of a queued or running job is 409, and changes nothing", async (api) => {
    const { job_id } = await api.submit();
    expect(problemOf(await remove(api, job_id))).toMatchObject({ code: "conflict", job_id });
    await api.agent().takeJob();
    expect(problemOf(await remove(api, job_id))).toMatchObject({ code: "conflict", job_id });
    expect(await api.job(job_id)).toMatchObject({ status: "running" });
  }),
  test("The idempotency key of a removed execution stays taken: a repeat is 409, and nothing runs", async (api) => {
    const fields = { code: "print(1)", idempotency_key: "removed-1" };
    const { job_id } = await api.submit(fields);
    await api.post(`/jobs/${job_id}/cancel`);
    expect((await remove(api, job_id)).status).toBe(200);
    const stored = await api.newest();
    for (const again of [fields, { ...fields, code: "print(2)" }]) {
      const refused = problemOf(await api.post("/execute/async", again));
      expect(refused).toMatchObject({ code: "conflict", existing_job_id: job_id });
    }
    expect(await api.newest()).toEqual(stored);
  }),
];
