import { setTimeout as sleep } from "node:timers/promises";
import { expect } from "vitest";
import { ExecutionRecord } from "../../../shared/wire/execution.ts";
import { type Api, body, expectFault } from "./api.ts";
import { each, type Row } from "./row.ts";

const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const error = (phase: "startup" | "execution") =>
  ({ type: "docker_error", message: "lost", phase }) as const;

async function ended(api: Api, id: string): Promise<ExecutionRecord> {
  const reply = await api.get(`/jobs/${id}/result?wait=true&timeout=60&view=full`);
  expect(reply.status).toBe(200);
  return ExecutionRecord.parse(body(reply));
}

export const scheduleRows: Row[] = [
  {
    rule: "A job with run_at is not leased before, and says what it waits for",
    async check(api) {
      const run_at = new Date(Date.now() + 1500).toISOString();
      const { job_id } = await api.submit({ run_at });
      const agent = api.agent();
      expect((await agent.poll()).jobs).toEqual([]);
      expect((await api.job(job_id)).message).toContain(`It is to start at ${run_at}.`);
      expect((await agent.takeJob()).execution_id).toBe(job_id);
      const record = await api.record(job_id);
      expect(record.run_at).toBe(run_at);
      expect(Date.parse(record.started_at!)).toBeGreaterThanOrEqual(Date.parse(run_at));
    },
  },
  {
    rule: "A job that is to start later does not keep later jobs waiting",
    async check(api) {
      await api.submit({ run_at: "2999-01-01T00:00:00Z" });
      const { job_id } = await api.submit({ run_at: "1999-01-01T00:00:00+02:00" });
      expect((await api.agent().takeJob()).execution_id).toBe(job_id);
    },
  },
  {
    rule: "A job that no agent takes within its queue_timeout ends as timeout, and no agent gets it",
    async check(api) {
      const { job_id } = await api.submit({ queue_timeout: 1 });
      const record = await ended(api, job_id);
      expect(record).toMatchObject({
        status: "timeout",
        queue_timeout: 1,
        exit_code: null,
        started_at: null,
        error: {
          type: "timeout",
          message: "No agent took the job within its queue_timeout of 1 s.",
          phase: "startup",
        },
      });
      expect((await api.agent().poll()).jobs).toEqual([]);
      expect((await api.get("/dlq")).text).toContain(job_id);
    },
  },
  {
    rule: "queue_timeout bounds the wait for the first lease alone",
    async check(api) {
      const { job_id } = await api.submit({ queue_timeout: 1 });
      const agent = api.agent();
      const { lease_id } = await agent.takeJob();
      const { created_at } = await api.job(job_id);
      await sleep(Date.parse(created_at) + 1100 - Date.now());
      await api.get("/health");
      await agent.post(lease_id, "release", { error: error("startup") });
      expect((await agent.takeJob()).execution_id).toBe(job_id);
    },
  },
  {
    rule: "With max_attempts 1 a job whose agent is lost fails, and is not run again",
    async check(api) {
      const { job_id } = await api.submit({ max_attempts: 1 });
      const agent = api.agent();
      await agent.takeJob();
      const died = JSON.stringify({ agent_id: agent.id, crashed: true });
      expect((await agent.send("POST", "/leave", died)).status).toBe(200);
      expect(await ended(api, job_id)).toMatchObject({
        status: "failed",
        max_attempts: 1,
        error: {
          type: "internal_error",
          message: expect.stringContaining("max_attempts") as string,
        },
      });
    },
  },
  {
    rule: "With max_attempts 1 a release before the code began is not counted, within two; a later one is final",
    async check(api) {
      const released = async (...phases: ("startup" | "execution")[]) => {
        const { job_id } = await api.submit({ max_attempts: 1 });
        const agent = api.agent();
        const seen = [];
        for (const phase of phases) {
          const { lease_id } = await agent.takeJob();
          await agent.post(lease_id, "release", { error: error(phase) });
          agent.held.delete(lease_id);
          seen.push((await api.job(job_id)).status);
        }
        return seen;
      };
      expect(await released("startup", "startup")).toEqual(["queued", "failed"]);
      expect(await released("startup", "execution")).toEqual(["queued", "failed"]);
      expect(await released("execution")).toEqual(["failed"]);
    },
  },
  {
    rule: "A traceparent goes from the request into the record and to the agent; one that is not valid is ignored",
    async check(api) {
      const submit = async (header: string) =>
        body(await api.post("/execute/async", { code: "1" }, { traceparent: header })) as {
          job_id: string;
        };
      const { job_id } = await submit(traceparent);
      expect((await api.record(job_id)).traceparent).toBe(traceparent);
      expect((await api.agent().takeJob()).traceparent).toBe(traceparent);
      for (const bad of [
        "x",
        traceparent.toUpperCase(),
        traceparent.replace(/4bf\w+/, "0".repeat(32)),
      ]) {
        expect((await api.record((await submit(bad)).job_id)).traceparent).toBeUndefined();
      }
    },
  },
  ...each(
    [
      ["run_at", "tomorrow"],
      ["run_at", "2026-11-22"],
      ["queue_timeout", 0],
      ["queue_timeout", 1.5],
      ["queue_timeout", 2_592_001],
      ["max_attempts", 0],
      ["max_attempts", 3],
    ] as const,
    ([field, value]) => `${field} = ${value} is 400 at that path, also of a rerun and a fork`,
    async (api, [field, value]) => {
      const { job_id } = await api.submit();
      expectFault(await api.post("/execute/async", { code: "1", [field]: value }), field);
      expectFault(await api.post("/execute", { code: "1", [field]: value }), field);
      expectFault(await api.post(`/jobs/${job_id}/rerun`, { [field]: value }), field);
      expectFault(await api.post(`/jobs/${job_id}/fork`, { code: "1", [field]: value }), field);
    },
  ),
  {
    rule: "With Prefer: wait=N an asynchronous submission answers 200 with the record if the job ends in time, else 202",
    async check(api) {
      const submit = (seconds: number) =>
        api.post("/execute/async", { code: "1" }, { Prefer: `wait=${seconds}` });
      const late = await submit(0);
      expect([late.status, late.headers.get("Preference-Applied")]).toEqual([202, "wait=0"]);
      const { job_id } = body(late) as { job_id: string };
      expect(late.headers.get("Location")).toBe(`/jobs/${job_id}`);
      await api.post(`/jobs/${job_id}/cancel`);

      const waiting = submit(60);
      const agent = api.agent();
      const { lease_id, execution_id } = await agent.takeJob();
      await agent.result(lease_id, { stdout_base64: btoa("in time\n") });
      const reply = await waiting;
      expect([reply.status, reply.headers.get("Preference-Applied")]).toEqual([200, "wait=60"]);
      expect(body(reply)).toEqual(await api.record(execution_id, ""));
      const plain = await api.post("/execute/async", { code: "1" }, { Prefer: "wait=soon" });
      expect([plain.status, plain.headers.get("Preference-Applied")]).toEqual([202, null]);
    },
  },
];
