import { expect } from "vitest";
import { InProgressResult } from "../../../shared/wire/execution.ts";
import { SubmittedJob } from "../../../shared/wire/client/submission.ts";
import { success } from "../scripted-agent.ts";
import { body, problemOf } from "./api.ts";
import { each, type Row } from "./row.ts";

const uuid7 = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;
const nobody = "019aa5f0-6c1e-7c3a-8d53-2f1f3a6b9c10";

export const jobRows: Row[] = [
  {
    rule: "POST /execute/async answers 202 with the job and its Location",
    async check(api) {
      const reply = await api.post(
        "/execute/async",
        { code: "print(1)" },
        { "X-Correlation-ID": "a-1" },
      );
      expect(reply.status).toBe(202);
      const job = SubmittedJob.strict().parse(body(reply));
      expect(job).toMatchObject({ status: "queued", queue_position: 1, correlation_id: "a-1" });
      expect(job.job_id).toMatch(uuid7);
      expect(reply.headers.get("Location")).toBe(`/jobs/${job.job_id}`);
      expect((await api.submit()).queue_position).toBe(2);
    },
  },
  {
    rule: "An asynchronous job is accepted without a connected agent, and runs when one connects",
    async check(api) {
      const { job_id } = await api.submit();
      const job = await api.agent().takeJob();
      expect(job.execution_id).toBe(job_id);
    },
  },
  {
    rule: "GET /jobs/{id} follows the job: queued, running, ended",
    async check(api) {
      const { job_id, created_at } = await api.submit();
      expect(body(await api.get(`/jobs/${job_id}`))).toEqual({
        job_id,
        status: "queued",
        created_at,
        started_at: null,
        message: expect.stringMatching(/^Waiting for a worker, at position 1\. ./) as string,
      });
      const agent = api.agent();
      const { lease_id } = await agent.takeJob();
      const running = await api.job(job_id);
      expect(running).toMatchObject({ status: "running", created_at });
      expect(Date.parse(running.started_at ?? "")).toBeGreaterThanOrEqual(Date.parse(created_at));
      await agent.result(lease_id);
      expect(await api.job(job_id)).toEqual({ ...running, status: "succeeded" });
    },
  },
  {
    rule: "GET /jobs/{id}/result is 202 with queue state and position until the job has ended",
    async check(api) {
      const [first, second] = [await api.submit(), await api.submit()];
      const reply = await api.get(`/jobs/${second.job_id}/result`);
      expect(reply.status).toBe(202);
      const pending = InProgressResult.strict().parse(body(reply));
      expect(pending).toMatchObject({
        job_id: second.job_id,
        status: "pending",
        queue_position: 2,
      });
      expect(pending.message).not.toBe("");
      await api.agent().takeJob();
      const running = await api.get(`/jobs/${first.job_id}/result?wait=false`);
      expect(running.status).toBe(202);
      expect(body(running)).toMatchObject({ status: "running", queue_position: 0 });
    },
  },
  {
    rule: "GET /jobs/{id}/result of an ended job is its record; view=full adds the extended fields",
    async check(api) {
      const { job_id } = await api.submit({ code: "print('é')", idempotency_key: "k-5" });
      const agent = api.agent();
      const { lease_id } = await agent.takeJob();
      await agent.post(lease_id, "started", { job_ref: "default@sha256:abc" });
      await agent.result(lease_id, {
        stdout_base64: "w6kK",
        stdout_truncated: true,
        output_json: '{"a":[1]}',
        job_ref: "default@sha256:abc",
        container_runtime: "runsc",
        container_backend: "zygote",
      });
      const plain = await api.get(`/jobs/${job_id}/result`);
      expect(plain.status).toBe(200);
      const record = body(plain) as Record<string, unknown>;
      expect(Object.keys(record).sort()).toEqual(
        "created_at duration_ms ended_at error execution_id exit_code job_type job_version output started_at status stderr stdout timing".split(
          " ",
        ),
      );
      expect(record).toMatchObject({
        execution_id: job_id,
        status: "succeeded",
        job_type: "default",
        job_version: "latest",
        exit_code: 0,
        stdout: "é\n",
        stderr: "",
        output: { a: [1] },
        error: null,
        timing: success.timing,
      });
      const full = body(await api.get(`/jobs/${job_id}/result?view=full`));
      expect(full).toEqual({
        ...record,
        job_ref: "default@sha256:abc",
        container_runtime: "runsc",
        container_backend: "zygote",
        artifacts: [],
        input_artifacts: [
          {
            name: "_code.py",
            size_bytes: 11,
            sha256: "c2a522a8ce9d5f0fde261bd77faf83ab9c840393aec825246011fdd7afaee699",
            content_type: "text/x-python; charset=utf-8",
          },
          {
            name: "_input.json",
            size_bytes: 2,
            sha256: "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a",
            content_type: "application/json",
          },
        ],
        resource_usage: { max_rss_mb: 9.5, cpu_time_ms: 12, wall_time_ms: 1500 },
        code_hash: "c2a522a8ce9d5f0fde261bd77faf83ab9c840393aec825246011fdd7afaee699",
        input_hash: "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a",
        parent_execution_id: null,
        relationship: null,
        stdout_truncated: true,
        stderr_truncated: false,
        idempotency_key: "k-5",
      });
      expect(body(await api.get(`/executions/${job_id}?view=full`))).toEqual(full);
    },
  },
  {
    rule: "GET /jobs/{id}/result?wait=true answers when the job ends",
    async check(api) {
      const { job_id } = await api.submit();
      const other = await api.submit();
      const agent = api.agent();
      const { lease_id } = await agent.takeJob();
      const answer = api.get(`/jobs/${job_id}/result?wait=true&timeout=30`);
      await agent.result(lease_id);
      // A waiter that is not woken looks again after five seconds; this one must answer after three.
      const early = api.get(`/jobs/${other.job_id}/result?wait=true&timeout=3`);
      const first = await Promise.race([answer, early]);
      expect(first.status).toBe(200);
      expect(body(first)).toMatchObject({ execution_id: job_id, status: "succeeded" });
      expect((await early).status).toBe(408);
    },
  },
  {
    rule: "GET /jobs/{id}/result?wait=true is 408 after its timeout, and the job continues",
    async check(api) {
      const { job_id } = await api.submit();
      for (const timeout of [0, 1]) {
        const reply = await api.get(`/jobs/${job_id}/result?wait=true&timeout=${timeout}`);
        expect(reply.status).toBe(408);
      }
      expect((await api.job(job_id)).status).toBe("queued");
    },
  },
  {
    rule: "POST /jobs/{id}/cancel of a queued job cancels it at once, and no agent gets it",
    async check(api) {
      const { job_id } = await api.submit();
      const reply = await api.post(`/jobs/${job_id}/cancel`);
      expect(reply.status).toBe(200);
      expect(body(reply)).toMatchObject({ job_id, status: "cancelled", started_at: null });
      expect((await api.agent().poll()).jobs).toEqual([]);
      expect(await api.record(job_id)).toMatchObject({
        status: "cancelled",
        exit_code: null,
        error: { type: "cancelled", phase: "startup" },
        artifacts: [],
      });
    },
  },
  {
    rule: "POST /jobs/{id}/cancel of a running job asks its agent once, and the agent ends it",
    async check(api) {
      const { job_id } = await api.submit();
      const agent = api.agent();
      const { lease_id } = await agent.takeJob();
      const waiting = agent.poll({ free_slots: 0, wait_s: 20 });
      const reply = await api.post(`/jobs/${job_id}/cancel`);
      expect(reply.status).toBe(200);
      expect(body(reply)).toMatchObject({ job_id, status: "running", cancel_requested: true });
      expect((await waiting).cancel).toEqual([lease_id]);
      expect((await agent.renew()).cancel).toEqual([lease_id]);
      expect((await agent.poll({ cancelling: [lease_id] })).cancel).toEqual([]);
      expect((await api.post(`/jobs/${job_id}/cancel`)).status).toBe(200);
      const error = { type: "cancelled", message: "Cancelled.", phase: "execution" } as const;
      await agent.result(lease_id, {
        status: "cancelled",
        exit_code: 143,
        error,
        stdout_base64: btoa("so far"),
      });
      expect(await api.record(job_id)).toMatchObject({
        status: "cancelled",
        error,
        stdout: "so far",
      });
      expect(await api.job(job_id)).not.toHaveProperty("cancel_requested");
    },
  },
  {
    rule: "POST /jobs/{id}/cancel of a cancelled job is 200, and changes nothing",
    async check(api) {
      const { job_id } = await api.submit();
      const first = await api.post(`/jobs/${job_id}/cancel`);
      const before = await api.record(job_id);
      const again = await api.post(`/jobs/${job_id}/cancel`);
      expect([again.status, body(again)]).toEqual([200, body(first)]);
      expect(await api.record(job_id)).toEqual(before);
    },
  },
  {
    rule: "POST /jobs/{id}/cancel of a finished job is 409, and changes nothing",
    async check(api) {
      const { job_id } = await api.submit();
      const agent = api.agent();
      await agent.result((await agent.takeJob()).lease_id);
      const before = await api.record(job_id);
      const refused = await api.post(`/jobs/${job_id}/cancel`);
      expect(problemOf(refused)).toMatchObject({ status: 409, code: "conflict", job_id });
      expect(await api.record(job_id)).toEqual(before);
    },
  },
  {
    rule: "Requirements of a request are accepted and not installed; an import error then gives the reason",
    async check(api) {
      const error = { type: "import_error", message: "No numpy", phase: "execution" } as const;
      const messageWith = async (requirements: string[]) => {
        const { job_id } = await api.submit({ requirements });
        const agent = api.agent();
        const { lease_id } = await agent.takeJob();
        await agent.result(lease_id, { status: "failed", exit_code: 1, error });
        return (await api.record(job_id)).error?.message;
      };
      expect(await messageWith([])).toBe("No numpy");
      expect(await messageWith(["numpy", "x>=1"])).toBe(
        "No numpy. The requirements (numpy, x>=1) were not installed: allow_runtime_requirements is false.",
      );
    },
  },
  {
    rule: "With allow_runtime_requirements the agent gets the requirements, and an import error is not changed",
    server: "with requirements",
    async check(api) {
      const requirements = ["numpy", "requests[socks] >= 2.31"];
      const { job_id } = await api.submit({ requirements });
      const agent = api.agent();
      const job = await agent.takeJob();
      expect(job.requirements).toEqual(requirements);
      const error = { type: "import_error", message: "No x", phase: "execution" } as const;
      await agent.result(job.lease_id, { status: "failed", exit_code: 1, error });
      expect((await api.record(job_id)).error).toEqual(error);
      const next = await api.submit();
      const { lease_id } = await agent.takeJob();
      const message = "ModuleNotFoundError: No module named 'PIL'";
      await agent.result(lease_id, {
        status: "failed",
        exit_code: 1,
        error: { ...error, message },
      });
      expect((await api.record(next.job_id)).warnings).toEqual([
        'Job type default has no module PIL. If it comes from a package (pillow): send requirements: ["pillow"] with the job.',
      ]);
    },
  },
  ...each(
    [nobody, "not-an-id", "%00", "..", "1", encodeURIComponent("'; --"), "%F0%9F%92%A9"],
    (id) => `A job or execution id that names nothing (${id}) is 404`,
    async (api, id) => {
      for (const path of [`/jobs/${id}`, `/jobs/${id}/result`, `/executions/${id}`]) {
        expect((await api.get(path)).status).toBe(404);
      }
      expect((await api.post(`/jobs/${id}/cancel`)).status).toBe(404);
    },
  ),
  ...each(
    ["wait=maybe", "timeout=-1", "timeout=x", "timeout=1.5", "timeout=86401", "view=half"],
    (query) => `GET /jobs/{id}/result?${query} is 400 with the parameter's name`,
    async (api, query) => {
      const { job_id } = await api.submit();
      const reply = await api.get(`/jobs/${job_id}/result?${query}`);
      expect(reply.status).toBe(400);
      expect(problemOf(reply).errors?.map(({ path }) => path)).toEqual([query.split("=")[0]]);
    },
  ),
];
