import { connect, type Socket } from "node:net";
import { expect } from "vitest";
import { waitUntil } from "../../../shared/testing/wait-until.ts";
import { SyncResult } from "../../../shared/wire/execution.ts";
import { body, problemOf, type Api } from "./api.ts";
import type { Row } from "./row.ts";
import { maxQueueSize } from "./servers.ts";

const base64 = (text: string): string => btoa(text);

/** Expects a refusal with Retry-After, after which nothing is stored. */
async function expectUnavailable(api: Api, path: string): Promise<void> {
  const before = await api.newest();
  const reply = await api.post(path, { code: "print(1)" });
  expect(reply.status).toBe(503);
  expect(Number(reply.headers.get("Retry-After"))).toBeGreaterThan(0);
  expect(problemOf(reply).error).toMatchObject({ type: "service_unavailable", phase: "startup" });
  expect(await api.newest()).toEqual(before);
}

interface HangUp extends Pick<Row, "only" | "hiddenByWrangler"> {
  how: string;
  hangUp: (client: Socket) => void;
}
const hangUps: HangUp[] = [
  {
    how: "resets its connection",
    hangUp: (client) => client.resetAndDestroy(),
    hiddenByWrangler: "its proxy never gives up the request that it passes on",
  },
  {
    how: "closes its connection",
    hangUp: (client) => client.destroy(),
    only: { on: "node", why: "workerd sees the end of what it reads when it next writes" },
  },
];

/** A client that has sent its request and waits. */
function waitingClient(api: Api, idempotency_key?: string): Socket {
  const { hostname, port } = new URL(api.url);
  const client = connect(Number(port), hostname);
  client.on("error", () => {});
  const code = JSON.stringify({ code: "print(1)", idempotency_key });
  client.write(
    `POST /execute HTTP/1.1\r\nHost: ${hostname}\r\nContent-Type: application/json\r\n` +
      `Content-Length: ${code.length}\r\n\r\n${code}`,
  );
  return client;
}

export const executeRows: Row[] = [
  {
    rule: "Requirements that were not installed, and what the agent left out of /output, are warnings in the record and in the result of POST /execute",
    async check(api) {
      const ended = async (requirements: string[], warnings?: string[]) => {
        const agent = api.agent();
        await agent.poll({ free_slots: 0 });
        const answer = api.post("/execute", { code: "1", requirements });
        const { lease_id } = await agent.takeJob();
        await agent.result(lease_id, { ...(warnings && { warnings }) });
        const { job_id, warnings: given } = body(await answer) as SyncResult;
        expect((await api.record(job_id)).warnings).toEqual(given);
        return given;
      };
      expect(await ended([])).toBeUndefined();
      const ignored =
        "The requirements (numpy) were not installed: allow_runtime_requirements is false.";
      expect(await ended(["numpy"])).toEqual([ignored]);
      expect(await ended(["numpy"], ["Left out"])).toEqual(["Left out", ignored]);
    },
  },
  {
    rule: "POST /execute answers with the sync result once the run has succeeded",
    async check(api) {
      const agent = api.agent();
      await agent.poll();
      const answer = api.post("/execute", { code: "print(1)", input_data: { a: 1 } });
      const job = await agent.takeJob();
      await agent.post(job.lease_id, "started", { job_ref: null });
      await agent.result(job.lease_id, {
        stdout_base64: base64("out\n"),
        stderr_base64: base64("err\n"),
        output_json: '{"sum":3}',
      });
      const reply = await answer;
      expect(reply.status).toBe(200);
      expect(SyncResult.strict().parse(body(reply))).toEqual({
        success: true,
        output: { sum: 3 },
        stdout: "out\n",
        stderr: "err\n",
        exit_code: 0,
        execution_time: 1.5,
        error: null,
        job_type: "default",
        job_id: job.execution_id,
      });
    },
  },
  {
    rule: "POST /execute sends white space, then its result, if the code runs for long",
    async check(api) {
      const agent = api.agent();
      await agent.poll();
      const answer = fetch(`${api.url}/execute`, {
        method: "POST",
        // An edge runtime compresses JSON, and holds the white space back.
        headers: { "Content-Type": "application/json", "Accept-Encoding": "identity" },
        body: JSON.stringify({ code: "1" }),
      });
      const { lease_id, execution_id } = await agent.takeJob();
      const { status, headers, body: sent } = await answer;
      expect(status).toBe(200);
      expect(headers.get("Cache-Control")).toContain("no-transform");
      const texts = sent!.pipeThrough(new TextDecoderStream()).getReader();
      expect((await texts.read()).value).toBe(" ");
      await agent.result(lease_id);
      let rest = "";
      for (let part = await texts.read(); !part.done; part = await texts.read()) rest += part.value;
      expect(JSON.parse(rest)).toMatchObject({ success: true, job_id: execution_id });
    },
  },
  {
    rule: "POST /execute answers 200 with the error of a run that failed",
    async check(api) {
      const agent = api.agent();
      await agent.poll();
      const answer = api.post("/execute", { code: "1/0", job_type: "ml" });
      const job = await agent.takeJob();
      const error = {
        type: "division_error",
        message: "division by zero",
        phase: "execution",
      } as const;
      await agent.result(job.lease_id, { status: "failed", exit_code: 1, error });
      expect(body(await answer)).toMatchObject({
        success: false,
        output: null,
        exit_code: 1,
        error,
        job_type: "ml",
      });
    },
  },
  ...hangUps.map(({ how, hangUp, ...where }): Row => ({
    rule: `POST /execute: a client that ${how} has its queued job cancelled`,
    ...where,
    async check(api) {
      const busy = api.agent();
      await busy.poll();
      const client = waitingClient(api);
      const id = await newJob(api);
      hangUp(client);
      expect(body(await api.get(`/jobs/${id}/result?wait=true`))).toMatchObject({
        status: "cancelled",
        error: { type: "cancelled" },
      });
    },
  })),
  ...hangUps.map(({ how, hangUp, ...where }): Row => ({
    rule: `POST /execute: a client that ${how} has its running job cancelled by the agent`,
    ...where,
    async check(api) {
      const agent = api.agent();
      await agent.poll();
      const client = waitingClient(api);
      const job = await agent.takeJob();
      hangUp(client);
      const told = await agent.poll({ free_slots: 0, wait_s: 20 });
      expect(told.cancel).toEqual([job.lease_id]);
    },
  })),
  {
    rule: "POST /execute: a client with an idempotency key that resets its connection leaves its job running",
    hiddenByWrangler: "its proxy never gives up the request that it passes on",
    async check(api) {
      const agent = api.agent();
      await agent.poll();
      const client = waitingClient(api, "kept");
      const { lease_id, execution_id } = await agent.takeJob();
      client.resetAndDestroy();
      const again = api.post("/execute", { code: "print(1)", idempotency_key: "kept" });
      const told = await agent.poll({ free_slots: 0, wait_s: 1 });
      expect(told.cancel).toEqual([]);
      await agent.result(lease_id);
      expect(body(await again)).toMatchObject({ success: true, job_id: execution_id });
    },
  },
  {
    rule: "POST /execute gives 503 with the job if no agent is left to run it; the job is cancelled, or kept with an idempotency key",
    async check(api) {
      const agent = api.agent();
      await agent.poll({ free_slots: 0 });
      const before = await api.newest();
      const keys = [undefined, "nobody is left"];
      const waiting = keys.map((idempotency_key) =>
        api.post("/execute", { code: "print(1)", idempotency_key }),
      );
      await waitUntil("both are stored", async () => {
        const [, second] = await api.newest();
        return second !== undefined && !before.includes(second);
      });
      await agent.poll({ free_slots: 0, breaker: openBreaker });
      const statuses = ["cancelled", "queued"];
      for (const [n, reply] of (await Promise.all(waiting)).entries()) {
        expect(reply.status).toBe(503);
        expect(Number(reply.headers.get("Retry-After"))).toBeGreaterThan(0);
        const { job_id = "" } = problemOf(reply);
        expect(await api.job(job_id)).toMatchObject({ status: statuses[n] });
      }
    },
  },
  {
    rule: "POST /execute without a connected agent is 503, and stores nothing",
    check: (api) => expectUnavailable(api, "/execute"),
  },
  {
    rule: "POST /execute while the breaker of every live agent is open is 503, and stores nothing",
    async check(api) {
      await api.agent().poll({ breaker: openBreaker });
      await expectUnavailable(api, "/execute");
    },
  },
  {
    rule: "POST /execute/async while the breaker of every known agent is open is 503, and stores nothing",
    async check(api) {
      await api.agent().poll({ breaker: openBreaker });
      await expectUnavailable(api, "/execute/async");
      await api.agent().poll();
      await api.submit();
    },
  },
  {
    rule: "A repeated request with an idempotency key gets its job even while new jobs are refused",
    async check(api) {
      const first = await api.submit({ idempotency_key: "before the breaker opened" });
      await api.agent().poll({ breaker: openBreaker });
      const again = await api.submit({ idempotency_key: "before the breaker opened" });
      expect(again.job_id).toBe(first.job_id);
    },
  },
  {
    rule: "An invalid request is 400 or 422 even if the service could not serve it",
    async check(api) {
      const wrong = [{ code: "" }, { code: "1", job_type: "gone" }];
      for (const request of wrong) expect((await api.post("/execute", request)).status).toBe(400);
      expect((await api.post("/execute", { code: "1", timeout: 601 })).status).toBe(422);
    },
  },
  ...["/execute", "/execute/async"].map((path): Row => ({
    rule: `POST ${path} into a full queue is 503, and stores nothing`,
    server: "with a short queue",
    async check(api) {
      await api.agent().poll();
      const kept = await api.submit({ idempotency_key: path });
      for (let n = 1; n < maxQueueSize; n++) await api.submit();
      await expectUnavailable(api, path);
      const again = await api.submit({ idempotency_key: path });
      expect(again).toMatchObject({ job_id: kept.job_id, queue_position: 1 });
      await api.post(`/jobs/${kept.job_id}/cancel`);
      await api.submit();
    },
  })),
  {
    rule: "At max_database_bytes new submissions are 503, and stored jobs still run",
    server: "with a small database",
    async check(api) {
      const agent = api.agent();
      const kept = await api.submit({ idempotency_key: "kept" });
      const { lease_id } = await agent.takeJob();
      const large = { code: `#${"x".repeat(40_000)}` };
      let refused;
      do refused = await api.post("/execute/async", large);
      while (refused.status === 202);
      expect(refused.status).toBe(503);
      expect(refused.text).toContain("max_database_bytes");
      expect(Number(refused.headers.get("Retry-After"))).toBeGreaterThan(0);
      for (const path of ["/execute", "/execute/async"]) await expectUnavailable(api, path);

      expect((await api.submit({ idempotency_key: "kept" })).job_id).toBe(kept.job_id);
      expect((await agent.result(lease_id)).status).toBe(200);
      expect(await api.job(kept.job_id)).toMatchObject({ status: "succeeded" });
      expect((await agent.poll()).jobs.length).toBeGreaterThan(0);
    },
  },
];

const openBreaker = {
  state: "open",
  failure_count: 5,
  success_count: 0,
  last_failure: null,
} as const;

/** Waits until a new job is queued, and returns its id. */
async function newJob(api: Api): Promise<string> {
  for (;;) {
    const page = body(await api.get("/executions?status=queued")) as {
      items: { execution_id: string }[];
    };
    if (page.items[0]) return page.items[0].execution_id;
  }
}
