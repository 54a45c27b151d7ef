import { expect } from "vitest";
import {
  type DeadLetter,
  DeadLetterDeleted,
  DeadLetterPage,
  DeadLetterStats,
} from "../../../shared/wire/client/dead-letter.ts";
import type { ExecutionErrorType } from "../../../shared/wire/errors.ts";
import type { ResultReport } from "../../../shared/wire/agent/lease.ts";
import { type Api, body, problemOf } from "./api.ts";
import { each, type Row } from "./row.ts";

/** A job that an agent has ended with this error. */
async function failed(api: Api, type: ExecutionErrorType): Promise<string> {
  const { job_id } = await api.submit();
  await end(api, { status: "failed", exit_code: 1, error: errorOf(type) });
  return job_id;
}

async function end(api: Api, result: Partial<ResultReport>): Promise<void> {
  const agent = api.agent();
  const { lease_id } = await agent.takeJob();
  expect((await agent.result(lease_id, result)).status).toBe(200);
}

function errorOf(type: ExecutionErrorType) {
  return { type, message: `${type}!`, phase: "execution" } as const;
}

async function page(api: Api, query = "limit=1000"): Promise<DeadLetterPage> {
  const reply = await api.get(`/dlq?${query}`);
  expect(reply.status).toBe(200);
  return DeadLetterPage.strict().parse(body(reply));
}

async function letterOf(api: Api, jobId: string): Promise<DeadLetter | undefined> {
  const { items } = await page(api);
  const found = items.filter(({ job_id }) => job_id === jobId);
  expect(found.length).toBeLessThanOrEqual(1);
  return found[0];
}

const ids = ({ items }: DeadLetterPage): string[] => items.map(({ job_id }) => job_id);

const stats = async (api: Api): Promise<DeadLetterStats> =>
  DeadLetterStats.strict().parse(body(await api.get("/dlq/stats")));

const ends: [what: string, kept: boolean, result: Partial<ResultReport>][] = [
  ["failed", true, { status: "failed", exit_code: 1, error: errorOf("value_error") }],
  ["timed out", true, { status: "timeout", exit_code: null, error: errorOf("execution_timeout") }],
  ["ran out of memory", true, { status: "oom", exit_code: 137, error: errorOf("oom") }],
  ["was cancelled", false, { status: "cancelled", exit_code: 143, error: errorOf("cancelled") }],
  ["succeeded", false, {}],
];

export const deadLetterRows: Row[] = [
  ...each(
    ends,
    ([what, kept]) => `A job that ${what} is ${kept ? "in the DLQ, once" : "not in the DLQ"}`,
    async (api, [, kept, result]) => {
      const { job_id } = await api.submit();
      await end(api, result);
      expect((await letterOf(api, job_id)) !== undefined).toBe(kept);
    },
  ),
  {
    rule: "A failed synchronous job is not in the DLQ; its failed rerun is",
    async check(api) {
      const agent = api.agent();
      await agent.poll();
      const answer = api.post("/execute", { code: "1" });
      const { execution_id } = await agent.takeJob();
      await agent.close();
      await answer;
      expect(await letterOf(api, execution_id)).toBeUndefined();
      await api.post(`/jobs/${execution_id}/rerun`);
      await end(api, { status: "failed", exit_code: 1, error: errorOf("key_error") });
      expect((await page(api)).items[0]).toMatchObject({ error_type: "key_error" });
    },
  },
  {
    rule: "An entry shows what was submitted, by whom, and how it ended",
    async check(api) {
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
    },
  },
  {
    rule: "retry_count counts the attempts after the first",
    async check(api) {
      const { job_id } = await api.submit();
      const agent = api.agent();
      const { lease_id } = await agent.takeJob();
      await agent.post(lease_id, "release", { error: errorOf("docker_error") });
      await end(api, { status: "failed", exit_code: 1, error: errorOf("key_error") });
      expect((await letterOf(api, job_id))?.retry_count).toBe(1);
    },
  },
  {
    rule: "GET /dlq lists entries in pages, newest first, filtered by error_type",
    async check(api) {
      const jobs = [
        await failed(api, "name_error"),
        await failed(api, "json_error"),
        await failed(api, "name_error"),
      ];
      const newest = jobs.toReversed();
      expect(ids(await page(api, "limit=3"))).toEqual(newest);
      const second = await page(api, "limit=1&offset=1");
      expect(ids(second)).toEqual([jobs[1]]);
      expect(second).toMatchObject({ limit: 1, offset: 1, has_more: true, count: 1 });
      expect(ids(await page(api, "error_type=name_error&limit=2"))).toEqual([jobs[2], jobs[0]]);
      expect(ids(await page(api, "error_type=bus_error"))).toEqual([]);
      const all = await page(api);
      expect(all).toMatchObject({ limit: 1000, offset: 0, has_more: false });
      expect(await page(api, "")).toMatchObject({ limit: 100, offset: 0 });
    },
  },
  ...each(
    "limit=0 limit=1001 limit=x limit=1.0 limit=01 limit=%2B1 limit= offset=-1 offset=1e1 before=1e1 error_type=none error_type=".split(
      " ",
    ),
    (query) => `GET /dlq?${query} is 400 with the parameter's name`,
    async (api, query) => {
      const reply = await api.get(`/dlq?${query}`);
      expect(reply.status).toBe(400);
      expect(problemOf(reply).errors?.map(({ path }) => path)).toEqual([query.split("=")[0]]);
    },
  ),
  {
    rule: "GET /dlq/stats counts the entries in total and by error type",
    async check(api) {
      const before = await stats(api);
      await failed(api, "index_error");
      await failed(api, "index_error");
      const after = await stats(api);
      expect(after.total).toBe(before.total + 2);
      expect(after.by_error_type["index_error"]).toBe(
        (before.by_error_type["index_error"] ?? 0) + 2,
      );
      const { items } = await page(api);
      expect(items).toHaveLength(after.total);
      expect(after.oldest_created_at).toBe(items.at(-1)?.created_at);
    },
  },
  {
    rule: "DELETE /dlq/{id} removes the entry and keeps the record",
    async check(api) {
      const jobId = await failed(api, "assertion_error");
      const { total } = await stats(api);
      const id = (await letterOf(api, jobId))?.id ?? 0;
      const reply = await api.send("DELETE", `/dlq/${id}`);
      expect(reply.status).toBe(200);
      expect(DeadLetterDeleted.strict().parse(body(reply))).toEqual({ id, deleted: true });
      expect(await letterOf(api, jobId)).toBeUndefined();
      expect((await stats(api)).total).toBe(total - 1);
      expect((await api.record(jobId)).status).toBe("failed");
      expect((await api.send("DELETE", `/dlq/${id}`)).status).toBe(404);
    },
  },
  ...each(
    ["0", "-1", "1.5", "x", "1e3", "99999999999999999999", "%00"],
    (id) => `DELETE /dlq/${id} is 404`,
    async (api, id) => expect((await api.send("DELETE", `/dlq/${id}`)).status).toBe(404),
  ),
];
