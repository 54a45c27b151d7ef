import { createHash } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { expect } from "vitest";
import { DerivedJob, SubmittedJob } from "../../../shared/wire/client/submission.ts";
import { type Api, body, expectFault, problemOf } from "./api.ts";
import { each, type Row } from "./row.ts";
import { apiKeys } from "./servers.ts";

export const idempotencyRows: Row[] = [
  {
    rule: "An idempotency key gives the same job for the same payload, in its current state",
    async check(api) {
      const fields = { idempotency_key: "k-1", input_data: { a: 1, b: { c: [1, 2], d: 2.0 } } };
      const first = await api.submit(fields);
      const again = await api.submit(fields);
      expect(again).toEqual({ ...first, correlation_id: again.correlation_id });
      const agent = api.agent();
      const job = await agent.takeJob();
      expect(await api.submit(fields)).toMatchObject({
        job_id: first.job_id,
        status: "running",
        queue_position: 0,
      });
      await agent.result(job.lease_id);
      expect(await api.submit(fields)).toMatchObject({ job_id: first.job_id, status: "succeeded" });
    },
  },
  {
    rule: "Payloads that differ only in the order of keys or in explicit defaults are equal",
    async check(api) {
      const first = await api.post(
        "/execute/async",
        '{"code":"1","input_data":{"a":1,"b":{"c":1,"d":2}},"idempotency_key":"k-2"}',
      );
      const again = await api.post(
        "/execute/async",
        ' {"idempotency_key":"k-2", "requirements":[], "input_data":{"b":{"d":2,"c":1},"a":1}, "code":"1", "job_type":"default"}',
      );
      expect(again.status).toBe(202);
      expect(body(again)).toMatchObject({ job_id: SubmittedJob.parse(body(first)).job_id });
    },
  },
  {
    rule: "An input of 200,000 values is compared, hashed and given to the code like a small one",
    server: "with a long queue",
    async check(api) {
      const members = Array.from(
        { length: 50_000 },
        (_, n) => `"k${(n * 7919) % 50_021}":[${n}.0]`,
      );
      const send = (input: string) =>
        api.post(
          "/execute/async",
          `{"code":"1","input_data":{${input}},"idempotency_key":"k-many"}`,
        );
      const first = SubmittedJob.parse(body(await send(members.join(","))));
      const again = await send(` ${members.toReversed().join(" ,\n")}`);
      expect(body(again)).toMatchObject({ job_id: first.job_id });
      expect((await send(members.slice(1).join(","))).status).toBe(409);
      const text = `{${members.join(",")}}`;
      const artifact = await api.get(`/jobs/${first.job_id}/artifacts/_input.json`);
      expect(artifact.text === text).toBe(true);
      const record = body(await api.get(`/executions/${first.job_id}?view=full`));
      const hash = createHash("sha256").update(text).digest("hex");
      expect(record).toMatchObject({ input_hash: hash });
      expect((await api.agent().takeJob()).input_json === text).toBe(true);
    },
  },
  ...each(
    [
      { code: "print(2)" },
      { input_data: { a: 2 } },
      { input_data: { a: [1] } },
      { timeout: 7 },
      { startup_timeout: 11 },
      { job_type: "ml" },
      { requirements: ["numpy"] },
      { stdin: "tea" },
      { args: ["a"] },
      { metadata: { a: "b" } },
      { run_at: "2026-01-01T00:00:00Z" },
      { queue_timeout: 9 },
      { max_attempts: 1 },
    ],
    (other) => `An idempotency key with another payload (${JSON.stringify(other)}) is 409`,
    async (api, other) => {
      const fields = { idempotency_key: `k-3 ${JSON.stringify(other)}`, input_data: { a: 1 } };
      const first = await api.submit(fields);
      const reply = await api.post("/execute/async", { code: "print(1)", ...fields, ...other });
      expect(reply.status).toBe(409);
      expect(problemOf(reply).existing_job_id).toBe(first.job_id);
    },
  ),
  {
    rule: "POST /execute with the idempotency key of a running job waits for that job, and later gets its stored result",
    async check(api) {
      const agent = api.agent();
      await agent.poll();
      const request = { code: "print(1)", idempotency_key: crypto.randomUUID() };
      const first = api.post("/execute", request);
      const { lease_id, execution_id } = await agent.takeJob();
      const joined = api.post("/execute", request);
      expect(await api.submit(request)).toMatchObject({ job_id: execution_id, status: "running" });
      await agent.result(lease_id, { stdout_base64: btoa("once\n") });
      const stored = api.post("/execute", request);
      for (const reply of await Promise.all([first, joined, stored])) {
        expect(reply.status).toBe(200);
        expect(body(reply)).toMatchObject({ job_id: execution_id, stdout: "once\n" });
      }
      const other = await api.post("/execute", { ...request, code: "print(2)" });
      expect([other.status, problemOf(other).existing_job_id]).toEqual([409, execution_id]);
    },
  },
  {
    rule: "POST /execute with the idempotency key of a queued asynchronous job waits for that job",
    async check(api) {
      const agent = api.agent();
      await agent.poll();
      const request = { code: "print(1)", idempotency_key: crypto.randomUUID() };
      const { job_id } = await api.submit(request);
      const reply = api.post("/execute", request);
      const { lease_id } = await agent.takeJob();
      await agent.result(lease_id);
      expect(body(await reply)).toMatchObject({ success: true, job_id });
    },
  },
  {
    rule: "The header Idempotency-Key is the same as the field; two that differ are 400",
    async check(api) {
      const header = { "Idempotency-Key": "header 1" };
      const send = (fields: object, headers: Record<string, string>) =>
        api.post("/execute/async", { code: "print(1)", ...fields }, headers);
      const first = SubmittedJob.parse(body(await send({}, header)));
      const field = { idempotency_key: "header 1" };
      for (const again of [
        await send({}, header),
        await send(field, {}),
        await send(field, header),
      ]) {
        expect(SubmittedJob.parse(body(again)).job_id).toBe(first.job_id);
      }
      expect((await api.record(first.job_id)).idempotency_key).toBe("header 1");
      const stored = await api.newest();
      expectFault(await send({ idempotency_key: "header 2" }, header), "idempotency_key");
      expectFault(await send({}, { "Idempotency-Key": "x".repeat(256) }), "Idempotency-Key");
      expect(await api.newest()).toEqual(stored);
    },
  },
  ...each(
    ["rerun", "fork"],
    (what) => `A ${what} takes an idempotency key, and a repeat gives the same job`,
    async (api, what) => {
      const [parent, other] = [await api.submit(), await api.submit()];
      const send = (id: string, fields: object = {}) =>
        api.post(
          `/jobs/${id}/${what}`,
          { ...(what === "fork" && { code: "2" }), ...fields },
          { "Idempotency-Key": `${what}-1` },
        );
      const first = await send(parent.job_id);
      expect(first.status).toBe(202);
      const { job_id, parent_execution_id } = DerivedJob.parse(body(first));
      expect(parent_execution_id).toBe(parent.job_id);
      expect(body(await send(parent.job_id))).toMatchObject({ job_id });
      for (const refused of [
        await send(parent.job_id, { timeout: 7 }),
        await send(other.job_id),
        await api.post("/execute/async", { code: "2", idempotency_key: `${what}-1` }),
      ]) {
        expect([refused.status, problemOf(refused).existing_job_id]).toEqual([409, job_id]);
      }
    },
  ),
  {
    rule: "Idempotency keys belong to a tenant: with another API key of the tenant, a repeat finds its job",
    server: "with keys",
    async check(api) {
      const request = { code: "print(1)", idempotency_key: "shared" };
      const ids = [];
      for (const apiKey of apiKeys) {
        const reply = await api.post("/execute/async", request, { "X-API-Key": apiKey });
        ids.push(SubmittedJob.parse(body(reply)).job_id);
      }
      expect(new Set(ids).size).toBe(1);
    },
  },
  {
    rule: "100 equal submissions at once with one key give one job",
    async check(api) {
      const before = await api.newest();
      const jobs = await Promise.all(
        Array.from({ length: 100 }, () => insist(api, { idempotency_key: "k-4" })),
      );
      const ids = new Set(jobs.map(({ job_id }) => job_id));
      expect([...ids]).toEqual([expect.any(String)]);
      const stored = await api.newest();
      expect(stored.filter((id) => !before.includes(id))).toEqual([...ids]);
    },
  },
];

/** Submits a job, again as long as the database of a busy machine is out of reach. */
async function insist(api: Api, fields: object): Promise<SubmittedJob> {
  for (;;) {
    const reply = await api.post("/execute/async", { code: "print(1)", ...fields });
    if (reply.status === 503) {
      await sleep(1000 * Number(reply.headers.get("Retry-After")));
      continue;
    }
    expect(reply.status).toBe(202);
    return SubmittedJob.parse(body(reply));
  }
}
