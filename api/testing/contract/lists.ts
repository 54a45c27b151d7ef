import { expect } from "vitest";
import { type Api, body, expectFault, problemOf } from "./api.ts";
import { each, type Row } from "./row.ts";

interface Page {
  items: ({ execution_id: string } & Record<string, unknown>)[];
  has_more: boolean;
}

async function page(api: Api, query: string): Promise<Page> {
  const reply = await api.get(`/executions?${query}`);
  expect(reply.status).toBe(200);
  return body(reply) as Page;
}

const ids = async (api: Api, query: string): Promise<string[]> =>
  (await page(api, query)).items.map(({ execution_id }) => execution_id);

const newYear = (year: number): string => `${year}-01-01T00:00:00%2B01:00`;

const mark = (): string => crypto.randomUUID();

export const listRows: Row[] = [
  {
    rule: "The metadata of a submission is in its record, and is kept by rerun and fork unless they bring their own",
    async check(api) {
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
    },
  },
  ...each(
    [
      ["51 entries", Object.fromEntries(Array.from({ length: 51 }, (_, n) => [`k${n}`, ""]))],
      ["a value that is no text", { a: 1 }],
      ["a value of 513 characters", { a: "x".repeat(513) }],
      ["a key with a colon", { "a:b": "" }],
      ["an empty key", { "": "" }],
      ["a list", ["a"]],
      ["NUL in a value", { a: "\0" }],
    ] as const,
    ([what]) => `Metadata with ${what} is 400 at that path`,
    async (api, [, metadata]) => {
      const reply = await api.post("/execute/async", { code: "1", metadata });
      expect(reply.status).toBe(400);
      expect((body(reply) as { errors: { path: string }[] }).errors[0]?.path).toMatch(/^metadata/);
    },
  ),
  {
    rule: "GET /executions filters by metadata: a pair, or all of several, with other filters",
    async check(api) {
      const run = mark();
      const [a, b] = [
        await api.submit({ metadata: { run, part: "a:1" } }),
        await api.submit({ metadata: { run, part: "b" }, job_type: "ml" }),
      ];
      const query = `metadata=run:${run}`;
      expect(await ids(api, query)).toEqual([b.job_id, a.job_id]);
      expect(await ids(api, `${query}&metadata=part:a:1`)).toEqual([a.job_id]);
      expect(await ids(api, `${query}&metadata=part:c`)).toEqual([]);
      expect(await ids(api, `${query}&job_type=ml&status=queued`)).toEqual([b.job_id]);
      expect(await ids(api, `${query}&limit=1&before=${b.job_id}`)).toEqual([a.job_id]);
      expect(await ids(api, `metadata=run:`)).toEqual([]);
      expectFault(await api.get("/executions?metadata=run"), "metadata.0");
    },
  },
  {
    rule: "GET /executions filters by parent",
    async check(api) {
      const { job_id } = await api.submit();
      const child = body(await api.post(`/jobs/${job_id}/rerun`)) as { job_id: string };
      expect(await ids(api, `parent_execution_id=${job_id}`)).toEqual([child.job_id]);
      expect(await ids(api, `parent_execution_id=${child.job_id}`)).toEqual([]);
    },
  },
  {
    rule: "GET /executions filters by time: created_after is inclusive, created_before is not",
    async check(api) {
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
      expect(await ids(api, `${query}&created_after=${time(first)}`)).toEqual(all);
      expect(await ids(api, `${query}&created_after=${time(second)}`)).toEqual(all.slice(0, 2));
      expect(await ids(api, `${query}&created_before=${time(third)}`)).toEqual(all.slice(1));
      const between = `created_after=${time(second)}&created_before=${time(third)}`;
      expect(await ids(api, between)).toEqual([second!.job_id]);
      expect(await ids(api, `created_after=${newYear(2999)}`)).toEqual([]);
      expect(await ids(api, `created_before=${newYear(1999)}`)).toEqual([]);
      for (const wrong of ["yesterday", "2026-11-21", "2026-11-21T00:00:00"]) {
        const reply = await api.get(`/executions?created_after=${wrong}`);
        expectFault(reply, "created_after");
        expect(problemOf(reply).detail).toContain("must be a time with its zone, such as");
      }
    },
  },
  {
    rule: "A cursor neither repeats nor leaves out executions while new ones arrive, even if its own is removed",
    async check(api) {
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
      const next = await ids(api, `${query}&before=${last}`);
      expect((await api.send("DELETE", `/executions/${last}`)).status).toBe(200);
      expect(await ids(api, `${query}&before=${last}`)).toEqual(next);
      const end = await page(api, `${query}&before=${next[1]}`);
      expect(end.has_more).toBe(false);
      const seen = [...first.items, ...end.items].map(({ execution_id }) => execution_id);
      expect([...seen.slice(0, 2), ...next, ...seen.slice(2)]).toEqual(jobs.toReversed());
      expect(await ids(api, `before=${jobs[0]}&metadata=run:${run}`)).toEqual([]);
      expectFault(await api.get("/executions?before=x"), "before");
    },
  },
  {
    rule: "GET /executions?fields= narrows records to these fields and the id",
    async check(api) {
      const { job_id } = await api.submit({ metadata: { a: "b" } });
      const one = async (fields: string) => (await page(api, `limit=1&fields=${fields}`)).items[0];
      expect(await one("status")).toEqual({ execution_id: job_id, status: "queued" });
      expect(await one("metadata,stdout,code_hash")).toEqual({
        execution_id: job_id,
        metadata: { a: "b" },
        stdout: "",
        code_hash: expect.any(String) as string,
      });
      expectFault(await api.get("/executions?fields=status,secret"), "fields.1");
    },
  },
  {
    rule: "GET /dlq takes a cursor",
    async check(api) {
      const failed = async (): Promise<string> => {
        const { job_id } = await api.submit();
        const agent = api.agent();
        const error = { type: "value_error", message: "", phase: "execution" } as const;
        const { lease_id } = await agent.takeJob();
        await agent.result(lease_id, { status: "failed", exit_code: 1, error });
        return job_id;
      };
      const [older, newer] = [await failed(), await failed()];
      const letters = async (query: string) =>
        (body(await api.get(`/dlq?limit=1${query}`)) as { items: { id: number; job_id: string }[] })
          .items[0]!;
      const first = await letters("");
      expect(first.job_id).toBe(newer);
      expect((await letters(`&before=${first.id}`)).job_id).toBe(older);
      expectFault(await api.get("/dlq?before=x"), "before");
    },
  },
];
