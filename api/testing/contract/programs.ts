import { expect } from "vitest";
import { ExecutionRecord, SyncResult } from "../../../shared/wire/execution.ts";
import { type Api, body, expectFault, problemOf } from "./api.ts";
import { defaultImage } from "./building.ts";
import { each, type Row } from "./row.ts";

const cpp = { language: "cpp", compile_timeout: 20 };
const leasedCpp = {
  file: "main.cpp",
  compile: ["g++", "-std=c++17", "-O2", "/code/main.cpp", "-o", "/tmp/a.out"],
  compile_timeout_s: 20,
  run: ["/tmp/a.out"],
};
const command = ["bash", "-e", "{file}"];

async function programOf(api: Api, id: string): Promise<unknown> {
  const job = await api.agent().takeJob();
  expect(job.execution_id).toBe(id);
  return job.program;
}

export const programRows: Row[] = [
  {
    rule: "`language` becomes the program that the agent runs; `{file}` in a command is the code's path; python is no program",
    async check(api) {
      for (const [fields, expected] of [
        [cpp, leasedCpp],
        [
          { command },
          { file: "main", compile: [], compile_timeout_s: 10, run: ["bash", "-e", "/code/main"] },
        ],
        [
          { command: ["./a"], compile_command: ["cc", "{file}"], compile_timeout: 7 },
          {
            file: "main",
            compile: ["cc", "/code/main"],
            compile_timeout_s: 7,
            run: ["./a"],
          },
        ],
        [{ language: "python" }, undefined],
      ] as const) {
        const { job_id } = await api.submit(fields);
        expect(await programOf(api, job_id)).toEqual(expected);
      }
    },
  },
  {
    rule: "The full record has language, command, compile_command and compile_timeout as they were sent; Python's has none",
    async check(api) {
      for (const fields of [cpp, { command }, { command, compile_command: ["cc"] }]) {
        const { job_id } = await api.submit(fields);
        expect(await api.record(job_id)).toMatchObject(fields);
        expect(await api.record(job_id, "")).not.toHaveProperty("language");
        const names = Object.keys(fields).join();
        const listed = await api.get(`/executions?fields=${names}&limit=1`);
        expect(body(listed)).toMatchObject({ items: [{ execution_id: job_id, ...fields }] });
      }
      const { job_id } = await api.submit({ language: "python" });
      expect(await api.record(job_id)).not.toHaveProperty("language");
    },
  },
  {
    rule: "Each job of a batch has its own language",
    async check(api) {
      const jobs = [cpp, {}, { command }].map((one) => ({ code: "x", ...one }));
      expect((await api.post("/execute/batch", { jobs })).status).toBe(202);
      const agent = api.agent();
      const files = [];
      for (const _ of jobs) files.push((await agent.takeJob()).program?.file);
      expect(files).toEqual(["main.cpp", undefined, "main"]);
    },
  },
  ...each(
    ["rerun", "fork"],
    (what) => `A ${what} has the language of its parent`,
    async (api, what) => {
      const parent = await api.submit(cpp);
      await api.agent().takeJob();
      const fields = what === "fork" ? { code: "y" } : {};
      const reply = await api.post(`/jobs/${parent.job_id}/${what}`, fields);
      expect(await programOf(api, (body(reply) as { job_id: string }).job_id)).toEqual(leasedCpp);
    },
  ),
  {
    rule: "The same idempotency key with another language is 409, with Python by name the same job",
    async check(api) {
      const key = { idempotency_key: crypto.randomUUID() };
      const first = await api.submit(key);
      expect((await api.submit({ ...key, language: "python" })).job_id).toBe(first.job_id);
      const other = await api.post("/execute/async", {
        code: "print(1)",
        ...key,
        language: "bash",
      });
      expect(other.status).toBe(409);
    },
  },
  {
    rule: "A record and the answer of POST /execute say how the compiler ended",
    async check(api) {
      const agent = api.agent();
      await agent.poll();
      const reply = api.post("/execute", { code: "x", ...cpp });
      const job = await agent.takeJob();
      const compile = { exit_code: 1, stdout: "", stderr: "main.cpp:1: no", ms: 31 };
      const message = "main.cpp:1: no";
      await agent.result(job.lease_id, {
        status: "failed",
        exit_code: null,
        error: { type: "compile_error", message, phase: "execution" },
        compile,
      });
      const answer = SyncResult.parse(body(await reply));
      expect(answer).toMatchObject({ success: false, compile, error: { type: "compile_error" } });
      const { body: record } = { body: await api.record(answer.job_id, "") };
      expect(ExecutionRecord.parse(record)).toMatchObject({ compile, exit_code: null });
    },
  },
  {
    rule: "A language that the job type does not have is 422 with those that it has",
    async check(api) {
      const stored = await api.newest();
      const reply = await api.post("/execute", { code: "x", language: "javascrpt" });
      expect(reply.status).toBe(422);
      expect(problemOf(reply)).toMatchObject({
        code: "language_unavailable",
        detail: expect.stringContaining('did you mean "javascript"?') as string,
        errors: [{ path: "language", message: expect.stringContaining("bash, c, cpp") as string }],
      });
      expect(await api.newest()).toEqual(stored);
    },
  },
  {
    rule: "Once an agent has looked into the image, the job type shows the languages that are there, and the others are 422",
    async check(api) {
      const agent = api.agent();
      const { agent: identity } = agent.status();
      const languages = { [defaultImage]: { bash: "5.2.37" } };
      const accepts = { ...identity.accepts, languages };
      await agent.poll({ agent: { ...identity, accepts } });
      const shown = body(await api.get("/job-types/default"));
      expect(shown).toMatchObject({
        languages: [{ name: "python" }, { name: "bash", version: "5.2.37" }],
      });
      const reply = await api.post("/execute/async", { code: "x", language: "cpp" });
      expect([reply.status, problemOf(reply)]).toMatchObject([
        422,
        {
          code: "language_unavailable",
          errors: [{ path: "language", message: "must be one of: python, bash" }],
        },
      ]);
      await api.submit({ language: "bash" });
      await agent.takeJob();
    },
  },
  ...each(
    [
      { fields: { language: "bash", command }, path: "command" },
      { fields: { language: "bash", requirements: ["six"] }, path: "requirements" },
      { fields: { language: "C++" }, path: "language" },
      { fields: { language: "" }, path: "language" },
      { fields: { command: [] }, path: "command" },
      { fields: { command: "ls" }, path: "command" },
      { fields: { command: ["a\0b"] }, path: "command.0" },
      { fields: { compile_command: ["cc"] }, path: "compile_command" },
      { fields: { language: "c", compile_command: ["cc"] }, path: "compile_command" },
      { fields: { language: "c", compile_timeout: 0 }, path: "compile_timeout" },
      { fields: { language: "c", compile_timeout: 301 }, path: "compile_timeout" },
    ],
    ({ fields }) => `A program like ${JSON.stringify(fields)} is 400 with its path`,
    async (api, { fields, path }) => {
      for (const where of ["/execute", "/execute/async"])
        expectFault(await api.post(where, { code: "x", ...fields }), path);
    },
  ),
];
