import { expect } from "vitest";
import { problemOf } from "./api.ts";
import { job, members, submit } from "./batches.ts";
import type { Row } from "./row.ts";
import { apiKeys } from "./servers.ts";

export const batchKeyRows: Row[] = [
  {
    rule: "The idempotency keys of a batch's jobs work as alone: jobs that existed before are shown, not members",
    async check(api) {
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
    },
  },
  {
    rule: "A repeat of a batch with its idempotency key gets the same batch; with another payload it is 409",
    async check(api) {
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
      for (const other of [
        { jobs: [job(0)] },
        { jobs, atomic: true },
        { jobs: [...jobs, job(3)] },
      ]) {
        const refused = await api.post("/execute/batch", other, header);
        expect([400, 409]).toContain(refused.status);
      }
      expect((await api.post("/execute/batch", { jobs: [job(0)] }, header)).status).toBe(409);
      expect(await api.newest()).toEqual(stored);
    },
  },
  {
    rule: "With another API key of the tenant, the repeat of a batch finds it",
    server: "with keys",
    async check(api) {
      const header = { "Idempotency-Key": "batch" };
      const ids = [];
      for (const key of apiKeys) {
        ids.push((await submit(api, [job(0)], {}, { ...header, "X-API-Key": key })).id);
      }
      expect(new Set(ids).size).toBe(1);
    },
  },
];
