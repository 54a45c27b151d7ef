import { request } from "undici";
import { expect } from "vitest";
import type { ResultReport } from "../../../shared/wire/agent/lease.ts";
import { type Api, body, notShared } from "./api.ts";
import { each, on } from "./row.ts";
import { apiKeys, maxQueueSize } from "./servers.ts";

const server = "with other protocols" as const;
const key = { "X-API-Key": apiKeys[0] };

/** The answer's status and JSON. `Api.send` knows the errors of this service only. */
async function call(
  api: Api,
  path: string,
  asked?: unknown,
  headers: Record<string, string> = {},
): Promise<{ status: number; json: unknown }> {
  const text = typeof asked === "string" ? asked : JSON.stringify(asked);
  const response = await fetch(`${api.url}/compat/sandbox-fusion${path}`, {
    method: asked === undefined ? "GET" : "POST",
    headers: { "Content-Type": "application/json", ...headers },
    ...(asked !== undefined && { body: text }),
  });
  expect(response.headers.get("Cache-Control")).toMatch(notShared);
  return { status: response.status, json: await response.json() };
}

const run = (api: Api, fields: Record<string, unknown> = {}) =>
  call(api, "/run_code", { code: "print(1)", language: "python", ...fields });

const short = { compile_timeout: 0.01, run_timeout: 0.01 };
const finished = { status: "Finished", execution_time: expect.any(Number) as number };
const failed = (
  type: NonNullable<ResultReport["error"]>["type"],
  exit_code: number | null,
  more: Partial<ResultReport> = {},
): Partial<ResultReport> => ({
  status: "failed",
  exit_code,
  error: { type, message: "why", phase: "execution" },
  ...more,
});
const compile = (exit_code: number | null, ms: number) => ({
  compile: { exit_code, stdout: "", stderr: "no", ms },
});

export const compatRows = on(server, [
  {
    rule: "SandboxFusion: code is one job of the configured key; seconds are rounded up",
    async check(api) {
      const agent = api.agent();
      await agent.poll();
      const asked = { stdin: "7", args: ["-x"], run_timeout: 2.2, memory_limit_MB: 512 };
      const reply = run(api, { ...asked, files: {}, fetch_files: [] });
      const job = await agent.takeJob();
      expect(job).toMatchObject({ code: "print(1)", timeout_s: 3 });
      const stdout_base64 = btoa("1\n");
      await agent.result(job.lease_id, { stdout_base64 });
      expect(await reply).toEqual({
        status: 200,
        json: {
          status: "Success",
          message: "",
          compile_result: null,
          run_result: { ...finished, return_code: 0, stdout: "1\n", stderr: "" },
          executor_pod_name: null,
          files: {},
        },
      });
      const record = body(await api.get(`/executions/${job.execution_id}?view=all`, key));
      expect(record).toMatchObject({ stdin: "7", args: ["-x"] });
    },
  },
  ...each(
    [
      [failed("value_error", 1), "Failed", null, { ...finished, return_code: 1 }],
      [failed("segfault", 139), "Failed", null, { ...finished, return_code: -11 }],
      [failed("oom", 137, { status: "oom" }), "Failed", null, { ...finished, return_code: -9 }],
      [failed("runtime_error", 137), "Failed", null, { ...finished, return_code: 137 }],
      [failed("json_error", 0), "Success", null, { ...finished, return_code: 0 }],
      [
        failed("execution_timeout", null, { status: "timeout" }),
        "Failed",
        null,
        { status: "TimeLimitExceeded", return_code: null },
      ],
      [
        failed("compile_error", null, compile(1, 30)),
        "Failed",
        { status: "Finished", return_code: 1, execution_time: 0.03, stderr: "no" },
        null,
      ],
      [
        failed("compile_error", null, compile(null, 10_004)),
        "Failed",
        { status: "TimeLimitExceeded", return_code: null },
        null,
      ],
      [
        failed("compile_error", null, compile(null, 30)),
        "Failed",
        { status: "Finished", return_code: -9 },
        null,
      ],
      [failed("internal_error", null), "SandboxError", null, null],
      [
        {
          ...failed("internal_error", null),
          error: { type: "oom", message: "", phase: "startup" },
        },
        "SandboxError",
        null,
        null,
      ],
    ] as [Partial<ResultReport>, string, object | null, object | null][],
    ([{ error, exit_code }, status]) =>
      `SandboxFusion: ${error?.type} with ${exit_code} is ${status}`,
    async (api, [result, status, compiled, ran]) => {
      const agent = api.agent();
      await agent.poll();
      const reply = run(api, { language: "c" });
      const job = await agent.takeJob();
      expect(job.program).toMatchObject({ file: "main.c", compile_timeout_s: 10 });
      await agent.result(job.lease_id, result);
      const { json } = await reply;
      expect(json).toMatchObject({ status, compile_result: compiled, run_result: ran });
    },
  ),
  {
    rule: "SandboxFusion: a notebook whose cell is lost with its agent is SandboxError, and its session ends",
    async check(api) {
      const agent = api.agent();
      agent.maxSessions = 1;
      const reply = call(api, "/run_jupyter", { cells: ["1", "2", "3"] });
      await agent.startSession();
      await agent.result((await agent.takeCall()).lease_id);
      await agent.result((await agent.takeCall()).lease_id, failed("internal_error", null));
      expect(await reply).toMatchObject({
        status: 200,
        json: { status: "SandboxError", message: "why", driver: null, cells: [] },
      });
      expect(body(await api.get("/sessions?status=ready", key))).toMatchObject({ count: 0 });
    },
  },
  {
    rule: "A result.json that knows nothing of Airlock is a file like any other: Dify and SandboxFusion",
    async check(api) {
      const agent = api.agent();
      await agent.poll();
      const text = '{ "n": 1.0 }\n';
      const fetched = run(api, { fetch_files: ["result.json"] });
      await agent.result((await agent.takeJob()).lease_id, { output_json: text });
      expect((await fetched).json).toMatchObject({
        status: "Success",
        files: { "result.json": btoa(text) },
      });
      const dify = fetch(`${api.url}/compat/dify/v1/sandbox/run`, {
        method: "POST",
        headers: { ...key, "Content-Type": "application/json" },
        body: JSON.stringify({ language: "python3", code: "1" }),
      });
      const { lease_id } = await agent.takeJob();
      await agent.result(lease_id, failed("json_error", 0, { stdout_base64: btoa("1") }));
      expect(await (await dify).json()).toMatchObject({
        code: 0,
        data: { stdout: "1", error: "", exit_code: 0 },
      });
    },
  },
  {
    rule: "A protocol without keys refuses web pages, and memory above the job type's",
    async check(api) {
      const { status, json } = await run(api, { memory_limit_MB: 513 });
      const msg = expect.stringContaining("memory_limit") as string;
      expect([status, json]).toMatchObject([422, { detail: [{ msg }] }]);
      for (const name of ["Origin", "Sec-Fetch-Site"]) {
        const page = { [name]: "https://evil.example", "Content-Type": "text/plain" };
        const asked = { code: "1", language: "python" };
        expect((await call(api, "/run_code", asked, page)).status).toBe(403);
      }
    },
  },
  {
    rule: "A request without a key of its own that was sent for a foreign host is 403: a page's name may point at the service",
    only: { on: "node", why: "a worker has no address of its own" },
    async check(api) {
      const ask = async (host: string, path: string, own: object = {}) => {
        const headers = { Host: host, ...own };
        const answer = await request(`${api.url}/compat/${path}`, { headers });
        await answer.body.dump();
        return answer.statusCode;
      };
      const foreign = "rebound.example:8080";
      expect(await ask(foreign, "piston/api/v2/runtimes")).toBe(403);
      expect(await ask(foreign, "sandbox-fusion/v1/ping")).toBe(403);
      expect(await ask(foreign, "librechat/files/x")).toBe(403);
      expect(await ask(foreign, "librechat/files/x", key)).toBe(404);
      expect(await ask("localhost:8080", "sandbox-fusion/v1/ping")).toBe(200);
    },
  },
  {
    rule: "A request counts once for the rate limit, also one that is refused before the service is asked",
    async check(api) {
      const own = { "X-API-Key": apiKeys[1] };
      const left = async () =>
        Number((await api.get("/pool/stats", own)).headers.get("RateLimit-Remaining"));
      const e2b = (method: string, path: string, asked?: object) =>
        fetch(`${api.url}/compat/e2b${path}`, {
          method,
          headers: own,
          ...(asked && { body: JSON.stringify(asked) }),
        });
      for (const send of [
        () => e2b("POST", "/v2/sandboxes", { templateID: "none" }),
        () => e2b("POST", "/v2/sandboxes", { autoPause: true }),
        () => e2b("POST", "/sandboxes/x/pause"),
        () => e2b("GET", "/v2/sandboxes"),
        () => e2b("GET", "/sandboxes/x"),
      ]) {
        const before = await left();
        await (await send()).body?.cancel();
        // The second one is the question.
        expect(before - (await left())).toBe(2);
      }
    },
  },
  {
    rule: "Piston: a first client that hangs up while the image is asked for its languages takes the answer from no other",
    only: { on: "node", why: "in workerd no request may wait for another one" },
    async check(api) {
      const agent = api.agent();
      await agent.poll();
      const gone = new AbortController();
      const runtimes = (init: RequestInit = {}) =>
        fetch(`${api.url}/compat/piston/api/v2/runtimes`, init);
      const first = runtimes({ signal: gone.signal }).catch(() => "gone");
      const job = await agent.takeJob();
      const second = runtimes();
      gone.abort();
      expect(await first).toBe("gone");
      const { cancel } = await agent.poll({ free_slots: 0 });
      expect(cancel).toEqual([]);
      await agent.result(job.lease_id, { stdout_base64: btoa("python Python 3.12.1\n") });
      const answer = await second;
      const python = { language: "python", version: "3.12.1" };
      expect([answer.status, await answer.json()]).toMatchObject([200, [python]]);
    },
  },
  {
    rule: "SandboxFusion: a full queue holds a request until there is room, or to the end of its time; it counts once for the rate limit",
    async check(api) {
      const agent = api.agent();
      await agent.poll();
      const headers = { "Content-Type": "application/json", ...key };
      for (let n = 0; n < maxQueueSize; n++) {
        expect((await api.post("/execute/async", { code: "0" }, headers)).status).toBe(202);
      }
      const leftOf = async () =>
        Number((await api.get("/pool/stats", key)).headers.get("RateLimit-Remaining"));
      const before = await leftOf();
      const late = await run(api, short);
      expect(late).toEqual({
        status: 504,
        json: { detail: expect.stringContaining("queue is full") as string },
      });
      // One for the request, one for the question; none where a new window began.
      expect(before - (await leftOf())).toBeLessThanOrEqual(2);
      const held = run(api, { code: "held" });
      for (;;) {
        const job = await agent.takeJob();
        await agent.result(job.lease_id);
        if (job.code === "held") break;
      }
      expect(await held).toMatchObject({ status: 200, json: { status: "Success" } });
    },
  },
  {
    rule: "SandboxFusion: a job whose answer has not begun 1 s before its client gives up is cancelled, and the answer is 504",
    async check(api) {
      const agent = api.agent();
      await agent.poll();
      const reply = run(api, short);
      const job = await agent.takeJob();
      expect((await reply).status).toBe(504);
      const { cancel } = await agent.poll({ free_slots: 0 });
      expect(cancel).toContain(job.lease_id);
    },
  },
  {
    rule: "SandboxFusion: a request may not name more files or cells than jobs have, as each is a request of its own",
    async check(api) {
      const many = Array.from({ length: 1001 }, () => "a");
      for (const [path, asked, msg] of [
        ["/run_code", { code: "1", language: "python", fetch_files: many }, "fetch_files"],
        ["/run_jupyter", { cells: ["1"], fetch_files: many }, "fetch_files"],
        ["/run_jupyter", { cells: many }, "cells"],
      ] as const) {
        const { status, json } = await call(api, path, asked);
        const detail = [{ msg: expect.stringContaining(msg) as string }];
        expect([status, json]).toMatchObject([422, { detail }]);
      }
    },
  },
  {
    rule: "SandboxFusion: a name in fetch_files that leads out of the folder is left out, and leads to no other route",
    async check(api) {
      const agent = api.agent();
      await agent.poll();
      const above = "../".repeat(3);
      for (const name of [`${above}executions`, `a/${above}../executions`, "/etc/passwd", ""]) {
        const reply = run(api, { fetch_files: [name] });
        await agent.result((await agent.takeJob()).lease_id);
        expect(await reply).toMatchObject({ status: 200, json: { status: "Success", files: {} } });
      }
    },
  },
]);
