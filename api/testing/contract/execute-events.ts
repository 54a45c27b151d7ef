import { expect } from "vitest";
import { Follower, textOf } from "../follower.ts";
import type { Api } from "./api.ts";
import type { Row } from "./row.ts";

const base64 = (text: string) => Buffer.from(text).toString("base64");
const execute = (api: Api, fields: object = {}) =>
  Follower.open(api.url, "/execute", {}, { code: "print(1)", ...fields });

/** Waits until the job is no longer in a status, as a client would. */
async function left(api: Api, id: string, status: string): Promise<string> {
  for (;;) {
    const job = await api.job(id);
    if (job.status !== status) return job.status;
  }
}

export const executeEventRows: Row[] = [
  {
    rule: "POST /execute with Accept: text/event-stream brings the events of its job, up to the end",
    async check(api) {
      const agent = api.agent();
      await agent.poll();
      await using client = await execute(api);
      expect([client.status, client.headers["content-type"]]).toEqual([200, "text/event-stream"]);
      const { lease_id, execution_id } = await agent.takeJob();
      await client.until(({ data }) => "status" in data && data.status === "running");
      const stdout_base64 = base64("1\n");
      await agent.result(lease_id, { stdout_base64 });
      const events = await client.rest();
      expect(events.at(-1)).toMatchObject({
        event: "end",
        data: { execution_id, status: "succeeded" },
      });
      expect(textOf(events, "stdout")).toBe("1\n");
    },
  },
  {
    rule: "Hanging up on the events of POST /execute cancels the job",
    async check(api) {
      const agent = api.agent();
      await agent.poll();
      const client = await execute(api);
      const { lease_id, execution_id } = await agent.takeJob();
      await client.until(({ data }) => "status" in data && data.status === "running");
      await client[Symbol.asyncDispose]();
      for (let cancel: string[] = []; !cancel.includes(lease_id);) {
        ({ cancel } = await agent.poll({ wait_s: 1, free_slots: 0 }));
      }
      expect((await api.job(execution_id)).cancel_requested).toBe(true);
    },
  },
  {
    rule: "With an idempotency key, hanging up on the events cancels nothing, and a repeat joins the job",
    async check(api) {
      const agent = api.agent();
      await agent.poll();
      const fields = { idempotency_key: `events-${crypto.randomUUID()}` };
      const client = await execute(api, fields);
      const { lease_id, execution_id } = await agent.takeJob();
      await client.until(({ data }) => "status" in data && data.status === "running");
      await client[Symbol.asyncDispose]();
      await using again = await execute(api, fields);
      await again.until(({ data }) => "status" in data && data.status === "running");
      expect((await api.job(execution_id)).cancel_requested).toBeUndefined();
      await agent.result(lease_id, { stdout_base64: base64("x") });
      const events = await again.rest();
      expect(events.at(-1)?.data).toMatchObject({ execution_id, status: "succeeded" });
      await using stored = await execute(api, fields);
      expect(textOf(await stored.rest(), "stdout")).toBe("x");
    },
  },
  {
    rule: "A job whose events nobody can bring about any more ends: without an agent the job is cancelled",
    async check(api) {
      const agent = api.agent();
      await agent.poll();
      await using client = await execute(api);
      const { data } = await client.until(({ event }) => event === "status");
      await agent.leave();
      const end = await client.until(({ event }) => event === "end");
      expect(end.data).toMatchObject({ job_id: data.job_id, status: "cancelled" });
      expect(await left(api, data.job_id, "queued")).toBe("cancelled");
    },
  },
  {
    rule: "An agent is told at once that a job is followed: at the claim, in a poll, and in answers to its posts",
    async check(api) {
      const agent = api.agent();
      const { job_id } = await api.submit();
      const early = await agent.takeJob();
      expect(early.watch).toBeUndefined();
      const post = () => agent.post(early.lease_id, "started", { job_ref: null });
      expect(JSON.parse((await post()).text)).toEqual({ watch: false });
      const polled = agent.poll({ wait_s: 20, free_slots: 0, watching: [] });
      await using client = await Follower.open(api.url, `/jobs/${job_id}/events`);
      await client.next();
      expect((await polled).watch).toEqual([early.lease_id]);
      expect((await agent.renew()).watch).toEqual([early.lease_id]);
      expect(JSON.parse((await post()).text)).toEqual({ watch: true });
      await agent.result(early.lease_id);
      const { job_id: next } = await api.submit();
      await using other = await Follower.open(api.url, `/jobs/${next}/events`);
      await other.next();
      await client.rest();
      const late = await agent.takeJob();
      expect(late.watch).toBe(true);
      await agent.result(late.lease_id);
    },
  },
];
