import { connect, type Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { expect } from "vitest";
import { waitUntil } from "../../../shared/testing/test-file.ts";
import { ExecutionRecord, InProgressResult, SyncResult } from "../../../shared/wire/executions.ts";
import { SubmittedJob } from "../../../shared/wire/submissions.ts";
import { success } from "../scripted-agent.ts";
import {
  type Api,
  body,
  buildType,
  defaultImage,
  digest,
  maxQueueSize,
  on,
  problemOf,
  type Row,
  test,
  working,
} from "./api.ts";

const uuid7 = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;

export const jobRows: Row[] = [
  test("POST /execute/async answers 202 with the job and its Location", async (api) => {
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
  }),
  test("GET /jobs/{id} follows the job: queued, running, ended", async (api) => {
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
  }),
  test("GET /jobs/{id}/result is 202 with queue state and position until the job has ended", async (api) => {
    const [first, second] = [await api.submit(), await api.submit()];
    const reply = await api.get(`/jobs/${second.job_id}/result`);
    expect(reply.status).toBe(202);
    const pending = InProgressResult.strict().parse(body(reply));
    expect(pending).toMatchObject({ job_id: second.job_id, status: "pending", queue_position: 2 });
    expect(pending.message).not.toBe("");
    await api.agent().takeJob();
    const running = await api.get(`/jobs/${first.job_id}/result?wait=false`);
    expect(running.status).toBe(202);
    expect(body(running)).toMatchObject({ status: "running", queue_position: 0 });
  }),
  test("GET /jobs/{id}/result of an ended job is its record; view=full adds the extended fields", async (api) => {
    const { agent, job_id, lease_id } = await working(api, {
      code: "print('é')",
      idempotency_key: "k-5",
    });
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
  }),
  test("GET /jobs/{id}/result?wait=true answers when the job ends", async (api) => {
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
  }),
  test("GET /jobs/{id}/result?wait=true is 408 after its timeout, and the job continues", async (api) => {
    const { job_id } = await api.submit();
    for (const timeout of [0, 1]) {
      const reply = await api.get(`/jobs/${job_id}/result?wait=true&timeout=${timeout}`);
      expect(reply.status).toBe(408);
    }
    expect((await api.job(job_id)).status).toBe("queued");
  }),
  test("POST /jobs/{id}/cancel of a queued job cancels it at once, and no agent gets it", async (api) => {
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
  }),
  test("POST /jobs/{id}/cancel of a running job asks its agent once, and the agent ends it", async (api) => {
    const { agent, job_id, lease_id } = await working(api);
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
  }),
  test("POST /jobs/{id}/cancel of a cancelled job is 200, and changes nothing", async (api) => {
    const { job_id } = await api.submit();
    const first = await api.post(`/jobs/${job_id}/cancel`);
    const before = await api.record(job_id);
    const again = await api.post(`/jobs/${job_id}/cancel`);
    expect([again.status, body(again)]).toEqual([200, body(first)]);
    expect(await api.record(job_id)).toEqual(before);
  }),
  test("POST /jobs/{id}/cancel of a finished job is 409, and changes nothing", async (api) => {
    const { job_id } = await api.submit();
    const agent = api.agent();
    await agent.result((await agent.takeJob()).lease_id);
    const before = await api.record(job_id);
    const refused = await api.post(`/jobs/${job_id}/cancel`);
    expect(problemOf(refused)).toMatchObject({ status: 409, code: "conflict", job_id });
    expect(await api.record(job_id)).toEqual(before);
  }),
  test("Requirements of a request are accepted and not installed; an import error then gives the reason", async (api) => {
    const error = { type: "import_error", message: "No numpy", phase: "execution" } as const;
    const messageWith = async (requirements: string[]) => {
      const { agent, job_id, lease_id } = await working(api, { requirements });
      await agent.result(lease_id, { status: "failed", exit_code: 1, error });
      return (await api.record(job_id)).error?.message;
    };
    expect(await messageWith([])).toBe("No numpy");
    expect(await messageWith(["numpy", "x>=1"])).toBe(
      "No numpy. The requirements (numpy, x>=1) were not installed: allow_runtime_requirements is false.",
    );
  }),
  ...on("with a long queue", [
    test("With allow_runtime_requirements the agent gets the requirements, and an import error is not changed", async (api) => {
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
    }),
  ]),
];

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
  test("Requirements that were not installed, and what the agent left out of /output, are warnings in the record and in the result of POST /execute", async (api) => {
    const ended = async (requirements: string[], warnings?: string[]) => {
      const agent = await api.connected({ free_slots: 0 });
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
  }),
  test("POST /execute answers with the sync result once the run has succeeded", async (api) => {
    const agent = await api.connected();
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
  }),
  test("POST /execute sends white space, then its result, if the code runs for long", async (api) => {
    const agent = await api.connected();
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
  }),
  test("POST /execute answers 200 with the error of a run that failed", async (api) => {
    const agent = await api.connected();
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
  }),
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
      const agent = await api.connected();
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
      const agent = await api.connected();
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
  test("POST /execute gives 503 with the job if no agent is left to run it; the job is cancelled, or kept with an idempotency key", async (api) => {
    const agent = await api.connected({ free_slots: 0 });
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
  }),
  {
    rule: "POST /execute without a connected agent is 503, and stores nothing",
    check: (api) => expectUnavailable(api, "/execute"),
  },
  test("POST /execute while the breaker of every live agent is open is 503, and stores nothing", async (api) => {
    await api.agent().poll({ breaker: openBreaker });
    await expectUnavailable(api, "/execute");
  }),
  test("POST /execute/async while the breaker of every known agent is open is 503, and stores nothing", async (api) => {
    await api.agent().poll({ breaker: openBreaker });
    await expectUnavailable(api, "/execute/async");
    await api.agent().poll();
    await api.submit();
  }),
  test("A repeated request with an idempotency key gets its job even while new jobs are refused", async (api) => {
    const first = await api.submit({ idempotency_key: "before the breaker opened" });
    await api.agent().poll({ breaker: openBreaker });
    const again = await api.submit({ idempotency_key: "before the breaker opened" });
    expect(again.job_id).toBe(first.job_id);
  }),
  test("An invalid request is 400 or 422 even if the service could not serve it", async (api) => {
    const wrong = [{ code: "" }, { code: "1", job_type: "gone" }];
    for (const request of wrong) expect((await api.post("/execute", request)).status).toBe(400);
    expect((await api.post("/execute", { code: "1", timeout: 601 })).status).toBe(422);
  }),
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
  ...on("with a small database", [
    test("At max_database_bytes new submissions are 503, and stored jobs still run", async (api) => {
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
    }),
  ]),
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

const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const error = (phase: "startup" | "execution") =>
  ({ type: "docker_error", message: "lost", phase }) as const;

async function ended(api: Api, id: string): Promise<ExecutionRecord> {
  const reply = await api.get(`/jobs/${id}/result?wait=true&timeout=60&view=full`);
  expect(reply.status).toBe(200);
  return ExecutionRecord.parse(body(reply));
}

export const scheduleRows: Row[] = [
  test("A job with run_at is not leased before, and says what it waits for", async (api) => {
    const agent = api.agent();
    await agent.poll();
    const run_at = new Date(Date.now() + 5000).toISOString();
    const { job_id } = await api.submit({ run_at });
    expect((await agent.poll()).jobs).toEqual([]);
    expect((await api.job(job_id)).message).toContain(`It is to start at ${run_at}.`);
    expect((await agent.takeJob()).execution_id).toBe(job_id);
    const record = await api.record(job_id);
    expect(record.run_at).toBe(run_at);
    expect(Date.parse(record.started_at!)).toBeGreaterThanOrEqual(Date.parse(run_at));
  }),
  test("A job that is to start later does not keep later jobs waiting", async (api) => {
    await api.submit({ run_at: "2999-01-01T00:00:00Z" });
    const { job_id } = await api.submit({ run_at: "1999-01-01T00:00:00+02:00" });
    expect((await api.agent().takeJob()).execution_id).toBe(job_id);
  }),
  test("A job that no agent takes within its queue_timeout ends as timeout, and no agent gets it", async (api) => {
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
  }),
  test("queue_timeout bounds the wait for the first lease alone", async (api) => {
    const { agent, job_id, lease_id } = await working(api, { queue_timeout: 1 });
    const { created_at } = await api.job(job_id);
    await sleep(Date.parse(created_at) + 1100 - Date.now());
    await api.get("/health");
    await agent.post(lease_id, "release", { error: error("startup") });
    expect((await agent.takeJob()).execution_id).toBe(job_id);
  }),
  test("With max_attempts 1 a job whose agent is lost fails, and is not run again", async (api) => {
    const { job_id } = await api.submit({ max_attempts: 1 });
    const agent = api.agent();
    await agent.takeJob();
    const died = JSON.stringify({ agent_id: agent.id, crashed: true });
    expect((await agent.send("POST", "/leave", died)).status).toBe(200);
    expect(await ended(api, job_id)).toMatchObject({
      status: "failed",
      max_attempts: 1,
      error: { type: "internal_error", message: expect.stringContaining("max_attempts") as string },
    });
  }),
  test("With max_attempts 1 a release before the code began is not counted, within two; a later one is final", async (api) => {
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
  }),
  test("A traceparent goes from the request into the record and to the agent; one that is not valid is ignored", async (api) => {
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
  }),
  test("With Prefer: wait=N an asynchronous submission answers 200 with the record if the job ends in time, else 202", async (api) => {
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
  }),
];

export const placementRows = on("with job types", [
  test("Jobs of a built type go to agents that have the image, which is pinned in their records", async (api) => {
    await buildType(api, api.agent(), "build-4", { digest: digest(4) }, "v2.0.0");
    const { job_id } = await api.submit({ job_type: "build-4" });
    const without = await api.agent().poll({ images: [defaultImage] });
    expect(without.jobs).toEqual([]);
    const agent = api.agent();
    const { jobs } = await agent.poll({ images: [digest(4)] });
    expect(jobs).toMatchObject([{ execution_id: job_id, image: digest(4) }]);
    const pinned = { job_version: "v2.0.0", job_ref: `build-4@${digest(4)}` };
    expect(await api.record(job_id)).toMatchObject(pinned);
    await agent.result(jobs[0]?.lease_id ?? "", { job_ref: null });
    expect(await api.record(job_id)).toMatchObject({ status: "succeeded", ...pinned });
  }),
  test("A record keeps its image reference when its job type is built again", async (api) => {
    const agent = api.agent();
    const run = async (image: string) => {
      const { job_id } = await api.submit({ job_type: "build-5" });
      const { jobs } = await agent.poll({ images: [image] });
      await agent.result(jobs[0]?.lease_id ?? "", { job_ref: `build-5@${image}` });
      return job_id;
    };
    await buildType(api, agent, "build-5", { digest: digest(50) }, "v1.0.0");
    const first = await run(digest(50));
    await buildType(api, agent, "build-5", { digest: digest(51) });
    const second = await run(digest(51));
    expect(await api.record(first)).toMatchObject({
      job_version: "v1.0.0",
      job_ref: `build-5@${digest(50)}`,
    });
    expect(await api.record(second)).toMatchObject({
      job_version: "latest",
      job_ref: `build-5@${digest(51)}`,
    });
  }),
  test("A job says why it waits when no agent has its image, and runs when the image is built again", async (api) => {
    const agent = api.agent();
    await buildType(api, agent, "build-6", { digest: digest(60) });
    await agent.poll({ images: [] });
    const { job_id } = await api.submit({ job_type: "build-6" });
    const waiting = await api.get(`/jobs/${job_id}/result`);
    const message = "Waiting for a worker, at position 1. Waits for the image of build-6.";
    expect(body(waiting)).toMatchObject({ message });
    await buildType(api, agent, "build-6", { digest: digest(61) });
    const { jobs } = await agent.poll({ images: [digest(61)] });
    expect(jobs).toMatchObject([{ execution_id: job_id, image: digest(61) }]);
  }),
  test("Jobs of a type with labels go to agents that have them; without such an agent the message says so", async (api) => {
    const { job_id } = await api.submit({ job_type: "labelled" });
    const agent = api.agent();
    expect((await agent.poll()).jobs).toEqual([]);
    expect(body(await api.get(`/jobs/${job_id}/result`))).toMatchObject({
      message: expect.stringContaining("gpu=a100") as string,
    });
    const identity = { ...agent.status().agent, labels: { gpu: "a100", zone: "x" } };
    const { jobs } = await agent.poll({ agent: identity });
    expect(jobs).toMatchObject([{ execution_id: job_id }]);
  }),
]);
