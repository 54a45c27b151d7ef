import { expect } from "vitest";
import { ExecutionRecord } from "../../../shared/wire/execution.ts";
import type { LeasedJob } from "../../../shared/wire/agent/lease.ts";
import { type Api, body, expectFault, problemOf } from "./api.ts";
import { each, type Row } from "./row.ts";

const stdin = "\u{feff}tea\r\n\0\u00e4\u{1f600}\n";
const args = ["--verbose", "", "\u00e4 b\n\"'", "\u{1f600}"];
const given = { stdin, args };
const mebibyte = 1024 ** 2;

const inputsOf = ({ stdin, args }: Pick<LeasedJob, "stdin" | "args">) => ({ stdin, args });

async function taken(api: Api, id: string): Promise<object> {
  const job = await api.agent().takeJob();
  expect(job.execution_id).toBe(id);
  return inputsOf(job);
}

/** The requests of these rows are larger than most servers of the table allow. */
const large = { server: "with a long queue" } as const;
const many = (count: number): string[] => Array.from({ length: count }, () => "");

async function refuse(api: Api, { fields, path }: { fields: object; path: string }): Promise<void> {
  const stored = await api.newest();
  for (const where of ["/execute", "/execute/async"])
    expectFault(await api.post(where, { code: "print(1)", ...fields }), path);
  const jobs = [{ code: "print(1)" }, { code: "print(1)", ...fields }];
  expectFault(await api.post("/execute/batch", { jobs, atomic: true }), `jobs.1.${path}`);
  expect(await api.newest()).toEqual(stored);
}

export const inputRows: Row[] = [
  {
    rule: "The agent and the full record get stdin and args as they were sent",
    async check(api) {
      const { job_id } = await api.submit(given);
      expect(await taken(api, job_id)).toEqual(given);
      expect(await api.record(job_id)).toMatchObject(given);
      expect(await api.record(job_id, "")).not.toHaveProperty("stdin");
      const listed = await api.get("/executions?fields=stdin,args&limit=1");
      expect(body(listed)).toMatchObject({ items: [{ execution_id: job_id, ...given }] });
    },
  },
  {
    rule: "POST /execute takes stdin and args",
    async check(api) {
      const agent = api.agent();
      await agent.poll();
      const reply = api.post("/execute", { code: "print(1)", ...given });
      const job = await agent.takeJob();
      expect(inputsOf(job)).toEqual(given);
      await agent.result(job.lease_id);
      expect((await reply).status).toBe(200);
    },
  },
  {
    rule: "Each job of a batch has its own stdin and args",
    async check(api) {
      const jobs = [{ stdin }, {}, { args }, given].map((one) => ({ code: "print(1)", ...one }));
      expect((await api.post("/execute/batch", { jobs })).status).toBe(202);
      const agent = api.agent();
      const told = [];
      for (const _ of jobs) told.push(inputsOf(await agent.takeJob()));
      expect(told).toEqual(jobs.map(inputsOf));
    },
  },
  ...each(
    ["rerun", "fork"],
    (what) => `A ${what} has the stdin and args of its parent, unless it brings its own`,
    async (api, what) => {
      const parent = await api.submit(given);
      await api.agent().takeJob();
      for (const [own, expected] of [
        [{}, given],
        [{ stdin: "other" }, { ...given, stdin: "other" }],
        [
          { stdin: "", args: [] },
          { stdin: undefined, args: undefined },
        ],
      ]) {
        const fields = { ...(what === "fork" && { code: "print(2)" }), ...own };
        const reply = await api.post(`/jobs/${parent.job_id}/${what}`, fields);
        expect(reply.status).toBe(202);
        const { job_id } = body(reply) as { job_id: string };
        expect(await taken(api, job_id)).toEqual(expected);
      }
    },
  ),
  {
    rule: "A record has stdin and args only where they were given; empty ones are none",
    async check(api) {
      const key = { idempotency_key: crypto.randomUUID() };
      const plain = await api.submit(key);
      const empty = await api.submit({ ...key, stdin: "", args: [] });
      expect(empty.job_id).toBe(plain.job_id);
      const record = await api.record(plain.job_id);
      expect(Object.keys(record).filter((name) => ["stdin", "args"].includes(name))).toEqual([]);
    },
  },
  {
    rule: "A job that has ended without a result keeps stdin and args in its record",
    async check(api) {
      const { job_id } = await api.submit({ ...given, max_attempts: 1 });
      const agent = api.agent();
      await agent.takeJob();
      const died = JSON.stringify({ agent_id: agent.id, crashed: true });
      expect((await agent.send("POST", "/leave", died)).status).toBe(200);
      const reply = await api.get(`/jobs/${job_id}/result?wait=true&timeout=60&view=full`);
      expect(ExecutionRecord.parse(body(reply))).toMatchObject({ status: "failed", ...given });
    },
  },
  ...each(
    [
      { fields: { args: ["ok", "a\0b"] }, path: "args.1" },
      { fields: { args: ["\ud800"] }, path: "args.0" },
      { fields: { args: [1] }, path: "args.0" },
      { fields: { args: "-v" }, path: "args" },
      { fields: { stdin: "a\udc00" }, path: "stdin" },
      { fields: { stdin: 5 }, path: "stdin" },
    ],
    ({ fields }) => `Inputs like ${JSON.stringify(fields)} are 400 with their path`,
    refuse,
  ),
  ...each(
    [
      {
        what: "an argument above 128 KiB",
        path: "args",
        fields: { args: ["x".repeat(128 * 1024)] },
      },
      {
        what: "more arguments than 128 KiB hold",
        path: "args",
        fields: { args: many(128 * 1024 + 1) },
      },
    ],
    ({ what }) => `${what} is 400`,
    refuse,
    large,
  ),
  {
    rule: "stdin may be as large as a request, and args 128 KiB",
    ...large,
    async check(api) {
      const most = { stdin: "x".repeat(3 * mebibyte), args: ["y".repeat(128 * 1024 - 1)] };
      const { job_id } = await api.submit(most);
      expect(await taken(api, job_id)).toEqual(most);
    },
  },
  {
    rule: "An agent that does not know stdin and args gets other jobs only; a job that needs it waits or is refused, and says so",
    async check(api) {
      const older = api.agent();
      const accepts = { job_types: null, builds: true };
      const agent = { ...older.status().agent, accepts };
      const { job_id } = await api.submit(given);
      const { job_id: plain } = await api.submit();
      const { jobs } = await older.poll({ agent });
      expect(jobs.map((job) => job.execution_id)).toEqual([plain]);
      const why = "No connected agent knows stdin, args and files";
      expect((await api.job(job_id)).message).toContain(why);
      const refused = await api.post("/execute", { code: "print(1)", ...given });
      expect([refused.status, problemOf(refused).detail]).toEqual([
        503,
        expect.stringContaining(why),
      ]);
      expect(await taken(api, job_id)).toEqual(given);
    },
  },
];
