import { expect } from "vitest";
import { DerivedJob, type SubmittedJob } from "../../../shared/wire/client/submission.ts";
import type { Reply } from "../scripted-agent.ts";
import { type Api, body, expectFault, problemOf } from "./api.ts";
import { each, type Row } from "./row.ts";
import { maxTimeoutS } from "./servers.ts";

const nobody = "019aa5f0-6c1e-7c3a-8d53-2f1f3a6b9c10";
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
  {
    rule: "POST /jobs/{id}/rerun queues the same code, input, job type and limits, and names its parent",
    async check(api) {
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
    },
  },
  {
    rule: "A rerun may have another job_type and timeout",
    async check(api) {
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
    },
  },
  {
    rule: "POST /jobs/{id}/fork queues new code on the same input, and names its parent",
    async check(api) {
      const parent = await api.submit(original);
      const fork = { code: "print('new')", timeout: 9 };
      const job = derived(await api.post(`/jobs/${parent.job_id}/fork`, fork));
      expect(await lineage(api, job)).toEqual([parent.job_id, "fork"]);
      const [first, second] = await leased(api, parent, job);
      expect(second).toEqual({ ...first, code: fork.code, timeout_s: 9 });
    },
  },
  {
    rule: "In a chain of reruns and forks each job names its direct parent",
    async check(api) {
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
    },
  },
  {
    rule: "A job can be derived from a queued, running, ended or synchronous job",
    async check(api) {
      const agent = api.agent();
      await agent.poll();
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
    },
  },
  {
    rule: "An idempotency key is not inherited",
    async check(api) {
      const parent = await api.submit({ idempotency_key: "derive-1" });
      const first = derived(await api.post(`/jobs/${parent.job_id}/rerun`));
      const second = derived(await api.post(`/jobs/${parent.job_id}/rerun`));
      expect(new Set([parent.job_id, first.job_id, second.job_id]).size).toBe(3);
      expect((await api.record(first.job_id)).idempotency_key).toBeNull();
    },
  },
  ...each(
    ["rerun", "fork"],
    (what) => `A ${what} of nothing is 404, with a wrong field 400, above max_timeout 422`,
    async (api, what) => {
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
      const tooLong = await send(job_id, { timeout: maxTimeoutS + 1 });
      expect(tooLong.status).toBe(422);
      expect(problemOf(tooLong).errors?.[0]?.path).toBe("timeout");
      expect(await api.newest()).toEqual(stored);
    },
  ),
  {
    rule: "A fork without code is 400, and so is a rerun with code",
    async check(api) {
      const { job_id } = await api.submit();
      expectFault(await api.post(`/jobs/${job_id}/fork`, {}), "code");
      expect((await api.post(`/jobs/${job_id}/fork`)).status).toBe(400);
      expectFault(await api.post(`/jobs/${job_id}/rerun`, { code: "1" }), "code");
      expect((await api.post(`/jobs/${job_id}/rerun`, "{")).status).toBe(400);
    },
  },
];

/** The parent that a rerun of a job names. */
async function again(api: Api, { job_id }: Pick<SubmittedJob, "job_id">): Promise<unknown> {
  const [parent] = await lineage(api, derived(await api.post(`/jobs/${job_id}/rerun`)));
  return parent;
}
