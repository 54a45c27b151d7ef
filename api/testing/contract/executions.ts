import { expect } from "vitest";
import { ExecutionPage, ExecutionRecord } from "../../../shared/wire/execution.ts";
import { type Api, body, problemOf } from "./api.ts";
import { each, type Row } from "./row.ts";
import { dockerError, release, working } from "./working.ts";

async function page(api: Api, query: string): Promise<ExecutionPage> {
  const reply = await api.get(`/executions?${query}`);
  expect(reply.status).toBe(200);
  expect(reply.headers.get("Content-Type")).toBe("application/json");
  return ExecutionPage.strict().parse(body(reply));
}

const ids = ({ items }: ExecutionPage): string[] => items.map(({ execution_id }) => execution_id);

export const executionRows: Row[] = [
  {
    rule: "GET /executions lists records in pages, newest first",
    async check(api) {
      const jobs = [await api.submit(), await api.submit(), await api.submit()];
      const newest = jobs.map(({ job_id }) => job_id).toReversed();
      const all = await page(api, "limit=1000");
      expect(ids(all).slice(0, 3)).toEqual(newest);
      expect(all).toMatchObject({
        limit: 1000,
        offset: 0,
        has_more: false,
        count: all.items.length,
      });

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
    },
  },
  {
    rule: "GET /executions filters by status, by job type, and by both",
    async check(api) {
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
    },
  },
  {
    rule: "GET /executions filters by several statuses in order of submission, and by a text in the error",
    async check(api) {
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
    },
  },
  {
    rule: "GET /executions?view=full adds the extended fields to each record",
    async check(api) {
      const { job_id } = await api.submit();
      const [full] = (await page(api, "limit=1&view=full")).items;
      expect(full).toEqual(await api.record(job_id));
      const [plain] = (await page(api, "limit=1")).items;
      expect(plain).toEqual(await api.record(job_id, ""));
      expect(plain).not.toHaveProperty("code_hash");
    },
  },
  {
    rule: "view=all adds the number of attempts and the rest of the submission to each record",
    async check(api) {
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
    },
  },
  {
    rule: "view=all lists every attempt: its agent, when the agent got it, when its code began, when and how it ended",
    async check(api) {
      const { agent, job_id, lease_id } = await working(api);
      await agent.post(lease_id, "started", { job_ref: null });
      await release(agent, lease_id);
      const next = api.agent();
      const again = await next.takeJob();
      const time = expect.stringMatching(/Z$/) as string;
      const first = {
        attempt: 1,
        agent_id: agent.id,
        agent: "scripted",
        claimed_at: time,
        code_started_at: time,
        ended_at: time,
        outcome: "released",
        error: dockerError,
      };
      const running = { ended_at: null, outcome: null, error: null };
      const second = { ...first, attempt: 2, agent_id: next.id, code_started_at: null, ...running };
      const { attempts } = await api.record(job_id, "?view=all");
      expect(attempts).toEqual([first, second]);
      await next.result(again.lease_id);
      const ended = [first, { ...second, ended_at: time, outcome: "result" }];
      const reply = await api.get(`/jobs/${job_id}/result?view=all`);
      expect(ExecutionRecord.parse(body(reply)).attempts).toEqual(ended);
      const narrowed = await api.get("/executions?limit=1&fields=attempts");
      expect(JSON.parse(narrowed.text)).toMatchObject({
        items: [{ execution_id: job_id, attempts: ended }],
      });
    },
  },
  {
    rule: "GET /executions/{id} returns the record even if the job has not ended",
    async check(api) {
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
    },
  },
  ...each(
    [
      "limit=0",
      "limit=1001",
      "limit=-1",
      "limit=x",
      "limit=",
      "limit=1.5",
      "limit=1&limit=2",
      "offset=-1",
      "offset=x",
      "offset=1e999",
      "status=pending",
      "status=",
      "status=failed&status=",
      "error=",
      "view=short",
    ],
    (query) => `GET /executions?${query} is 400 with the parameter's name`,
    async (api, query) => {
      const reply = await api.get(`/executions?${query}`);
      expect(reply.status).toBe(400);
      expect(problemOf(reply).errors?.map(({ path }) => path)).toEqual([query.split("=")[0]]);
    },
  ),
];
