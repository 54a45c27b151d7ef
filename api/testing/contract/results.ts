import { expect } from "vitest";
import { SyncResult } from "../../../shared/wire/execution.ts";
import { Follower } from "../follower.ts";
import { type Api, body, expectFault } from "./api.ts";
import { each, type Row } from "./row.ts";
import { working } from "./working.ts";

const item = (number: number, text: string, main = false) => ({
  number,
  main,
  data: { "text/plain": text, "text/html": `<b>${text}</b>\u0000` },
  stdout_at: number,
  stderr_at: 0,
});
const asked = { results: true };
const follow = (api: Api, id: string, query = "") =>
  Follower.open(api.url, `/jobs/${id}/events${query}`, {});

export const resultRows: Row[] = [
  {
    rule: "`results: true` reaches the agent; a job that did not ask for results has no such field",
    async check(api) {
      const first = await api.submit(asked);
      const second = await api.submit({ results: false });
      const agent = api.agent();
      const jobs = [await agent.takeJob(), await agent.takeJob()];
      expect(jobs.map(({ results }) => results)).toEqual([true, undefined]);
      await agent.result(jobs[0]!.lease_id, {});
      await agent.result(jobs[1]!.lease_id, { items: [item(1, "unasked")] });
      expect(await api.record(first.job_id, "")).toMatchObject({ results: [] });
      expect(await api.record(second.job_id)).not.toHaveProperty("results");
    },
  },
  {
    rule: "Items that an agent posts while the code runs and with its result are the record's `results`, each once",
    async check(api) {
      const { agent, job_id, lease_id } = await working(api, asked);
      const items = [item(1, "one"), item(2, "two"), item(3, "three", true)];
      const first = { items: items.slice(0, 2) };
      expect((await agent.post(lease_id, "items", first)).status).toBe(200);
      expect((await agent.post(lease_id, "items", first)).status).toBe(200);
      const other = { items: [item(2, "other")] };
      expect((await agent.post(lease_id, "items", other)).status).toBe(409);
      expect(await api.record(job_id, "")).not.toHaveProperty("results");
      await agent.result(lease_id, { items: items.slice(1), results_truncated: true });
      expect((await agent.post(lease_id, "items", first)).status).toBe(200);
      expect((await agent.post(lease_id, "items", { items: [item(9, "late")] })).status).toBe(409);
      const expected = { results: items, results_truncated: true };
      expect(await api.record(job_id, "")).toMatchObject(expected);
      const listed = body(await api.get("/executions?fields=results&limit=1"));
      expect(listed).toMatchObject({ items: [{ execution_id: job_id, results: items }] });
    },
  },
  {
    rule: "POST /execute answers with the results",
    async check(api) {
      const agent = api.agent();
      await agent.poll();
      const reply = api.post("/execute", { code: "1", ...asked });
      const { lease_id } = await agent.takeJob();
      await agent.result(lease_id, { items: [item(1, "1", true)] });
      const answer = SyncResult.parse(body(await reply));
      expect(answer).toMatchObject({ success: true, results: [item(1, "1", true)] });
      expect(answer).not.toHaveProperty("results_truncated");
    },
  },
  {
    rule: "A follower gets each item once as the event `display`, also behind a cursor, and the end without them",
    async check(api) {
      const { agent, job_id, lease_id } = await working(api, asked);
      await using live = await follow(api, job_id);
      await agent.post(lease_id, "items", { items: [item(1, "one")] });
      const shown = await live.until(({ event }) => event === "display");
      expect(shown.data).toMatchObject({ job_id, attempt: 1, ...item(1, "one") });
      const items = [item(1, "one"), item(2, "two"), item(3, "three", true)];
      await agent.result(lease_id, { items: items.slice(1) });
      const events = await live.rest();
      const numbers = events.flatMap(({ event, data }) =>
        event === "display" && "number" in data ? [data.number] : [],
      );
      expect(numbers).toEqual([1, 2, 3]);
      expect(events.at(-1)).toMatchObject({ event: "end" });
      expect(events.at(-1)?.data).not.toHaveProperty("results");
      await using again = await follow(api, job_id, `?after=${shown.id}`);
      const rest = await again.rest();
      expect(rest.map(({ event }) => event)).toEqual(["display", "display", "end"]);
    },
  },
  {
    rule: "Items of a lost try are not shown; those of a job whose agent was lost are",
    async check(api) {
      const { agent, job_id, lease_id } = await working(api, asked);
      await agent.post(lease_id, "items", { items: [item(1, "first try")] });
      const message = "gone";
      const error = { type: "internal_error", message, phase: "execution" };
      await agent.post(lease_id, "release", { error });
      agent.held.delete(lease_id);
      const again = await agent.takeJob();
      await agent.post(again.lease_id, "items", { items: [item(1, "second try")] });
      await agent.post(again.lease_id, "release", { error });
      expect(await api.record(job_id, "")).toMatchObject({
        status: "failed",
        results: [item(1, "second try")],
      });
    },
  },
  ...each(
    ["rerun", "fork"],
    (what) => `A ${what} asks for results as its parent does, unless it says otherwise`,
    async (api, what) => {
      const { agent, job_id, lease_id } = await working(api, asked);
      await agent.result(lease_id);
      const code = what === "fork" ? { code: "y" } : {};
      for (const [fields, expected] of [
        [{}, true],
        [{ results: false }, undefined],
      ] as const) {
        await api.post(`/jobs/${job_id}/${what}`, { ...code, ...fields });
        expect((await agent.takeJob()).results).toBe(expected);
      }
    },
  ),
  {
    rule: "Each job of a batch says whether it asks for results",
    async check(api) {
      const jobs = [{ code: "x", ...asked }, { code: "y" }];
      expect((await api.post("/execute/batch", { jobs })).status).toBe(202);
      const agent = api.agent();
      const taken = [await agent.takeJob(), await agent.takeJob()];
      expect(taken.map(({ results }) => results)).toEqual([true, undefined]);
    },
  },
  {
    rule: "The same idempotency key with `results` is 409, with results: false the same job",
    async check(api) {
      const key = { idempotency_key: crypto.randomUUID() };
      const first = await api.submit(key);
      expect((await api.submit({ ...key, results: false })).job_id).toBe(first.job_id);
      const other = await api.post("/execute/async", { code: "print(1)", ...key, ...asked });
      expect(other.status).toBe(409);
    },
  },
  {
    rule: "`results` with another language is 400",
    async check(api) {
      const fields = { code: "x", language: "bash", ...asked };
      expectFault(await api.post("/execute/async", fields), "results");
    },
  },
];
