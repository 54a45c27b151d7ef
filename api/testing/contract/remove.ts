import { expect } from "vitest";
import { DeadLetterPage } from "../../../shared/wire/client/dead-letter.ts";
import { type Api, body, problemOf } from "./api.ts";
import { uploaded } from "./files.ts";
import type { Row } from "./row.ts";

const remove = (api: Api, id: string) => api.send("DELETE", `/executions/${id}`);

export const removeRows: Row[] = [
  {
    rule: "DELETE /executions/{id} removes a finished record, its artifacts and its dead letter",
    async check(api) {
      const { job_id } = await api.submit();
      const agent = api.agent();
      const { lease_id } = await agent.takeJob();
      expect((await agent.upload(lease_id, "a.txt", "bytes")).status).toBe(200);
      const error = { type: "value_error", message: "no", phase: "execution" } as const;
      await agent.result(lease_id, { status: "failed", exit_code: 1, error });
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
    },
  },
  {
    rule: "Of several DELETEs of one execution, dead letter or file at once, one removes it and the others are 404",
    async check(api) {
      const { job_id } = await api.submit();
      const agent = api.agent();
      const error = { type: "value_error", message: "no", phase: "execution" } as const;
      const { lease_id } = await agent.takeJob();
      await agent.result(lease_id, { status: "failed", exit_code: 1, error });
      const letters = DeadLetterPage.parse(body(await api.get("/dlq?limit=1000"))).items;
      const letter = letters.find((one) => one.job_id === job_id)!;
      const { file_id } = await uploaded(api, "a.txt", "a");
      for (const path of [`/dlq/${letter.id}`, `/executions/${job_id}`, `/files/${file_id}`]) {
        const replies = await Promise.all(
          Array.from({ length: 8 }, () => api.send("DELETE", path)),
        );
        const statuses = replies.map(({ status }) => status).toSorted((a, b) => a - b);
        expect([path, ...statuses]).toEqual([path, 200, ...Array.from({ length: 7 }, () => 404)]);
      }
    },
  },
  {
    rule: "DELETE /executions/{id} of a queued or running job is 409, and changes nothing",
    async check(api) {
      const { job_id } = await api.submit();
      expect(problemOf(await remove(api, job_id))).toMatchObject({ code: "conflict", job_id });
      await api.agent().takeJob();
      expect(problemOf(await remove(api, job_id))).toMatchObject({ code: "conflict", job_id });
      expect(await api.job(job_id)).toMatchObject({ status: "running" });
    },
  },
  {
    rule: "The idempotency key of a removed execution stays taken: a repeat is 409, and nothing runs",
    async check(api) {
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
    },
  },
];
