import { createHash } from "node:crypto";
import { request } from "undici";
import { expect } from "vitest";
import type { ResultReport } from "../../../shared/wire/leases.ts";
import { type Api, apiKeys, body, maxQueueSize, notShared, on, test } from "./api.ts";

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

const late = { status: "TimeLimitExceeded", return_code: null };
const compiler = (return_code: number, more = {}) => ({ status: "Finished", return_code, ...more });
const noMemory = { type: "oom", message: "", phase: "startup" } as const;

/** What an agent reports, and what its client is told: a status, and how compiler and code ended. */
const ends: [Partial<ResultReport>, string, compiled: object | null, ran: object | null][] = [
  [failed("value_error", 1), "Failed", null, { ...finished, return_code: 1 }],
  [failed("segfault", 139), "Failed", null, { ...finished, return_code: -11 }],
  [failed("oom", 137, { status: "oom" }), "Failed", null, { ...finished, return_code: -9 }],
  [failed("runtime_error", 137), "Failed", null, { ...finished, return_code: 137 }],
  [failed("json_error", 0), "Success", null, { ...finished, return_code: 0 }],
  [failed("execution_timeout", null, { status: "timeout" }), "Failed", null, late],
  [
    failed("compile_error", null, compile(1, 30)),
    "Failed",
    compiler(1, { execution_time: 0.03, stderr: "no" }),
    null,
  ],
  [failed("compile_error", null, compile(null, 10_004)), "Failed", late, null],
  [failed("compile_error", null, compile(null, 30)), "Failed", compiler(-9), null],
  [failed("internal_error", null), "SandboxError", null, null],
  [{ ...failed("internal_error", null), error: noMemory }, "SandboxError", null, null],
];

export const compatRows = on(server, [
  test("SandboxFusion: code is one job of the configured key; seconds are rounded up", async (api) => {
    const agent = await api.connected();
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
  }),
  test("SandboxFusion: how the code and its compiler ended is told by status, exit code or signal, and time", async (api) => {
    const agent = await api.connected();
    for (const [result, status, compiled, ran] of ends) {
      const reply = run(api, { language: "c" });
      const job = await agent.takeJob();
      expect(job.program).toMatchObject({ file: "main.c", compile_timeout_s: 10 });
      await agent.result(job.lease_id, result);
      const expected = { status, compile_result: compiled, run_result: ran };
      expect([result, (await reply).json]).toMatchObject([result, expected]);
    }
  }),
  test("SandboxFusion: a notebook whose cell is lost with its agent is SandboxError, and its session ends", async (api) => {
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
  }),
  test("A result.json that knows nothing of Airlock is a file like any other: Dify and SandboxFusion", async (api) => {
    const agent = await api.connected();
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
  }),
  test("A protocol without keys refuses web pages, and memory above the job type's", async (api) => {
    const { status, json } = await run(api, { memory_limit_MB: 513 });
    const msg = expect.stringContaining("memory_limit") as string;
    expect([status, json]).toMatchObject([422, { detail: [{ msg }] }]);
    for (const name of ["Origin", "Sec-Fetch-Site"]) {
      const page = { [name]: "https://evil.example", "Content-Type": "text/plain" };
      const asked = { code: "1", language: "python" };
      expect((await call(api, "/run_code", asked, page)).status).toBe(403);
    }
  }),
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
  test("A request counts once for the rate limit, also one that is refused before the service is asked", async (api) => {
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
  }),
  {
    rule: "Piston: a first client that hangs up while the image is asked for its languages takes the answer from no other",
    only: { on: "node", why: "in workerd no request may wait for another one" },
    async check(api) {
      const agent = await api.connected();
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
  test("SandboxFusion: a full queue holds a request until there is room, or to the end of its time; it counts once for the rate limit", async (api) => {
    const agent = await api.connected();
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
  }),
  test("SandboxFusion: a job whose answer has not begun 1 s before its client gives up is cancelled, and the answer is 504", async (api) => {
    const agent = await api.connected();
    const reply = run(api, short);
    const job = await agent.takeJob();
    expect((await reply).status).toBe(504);
    const { cancel } = await agent.poll({ free_slots: 0 });
    expect(cancel).toContain(job.lease_id);
  }),
  test("SandboxFusion: a request may not name more files or cells than jobs have, as each is a request of its own", async (api) => {
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
  }),
  test("SandboxFusion: a name in fetch_files that leads out of the folder is left out, and leads to no other route", async (api) => {
    const agent = await api.connected();
    const above = "../".repeat(3);
    for (const name of [
      `${above}executions`,
      `a/${above}../executions`,
      "/etc/passwd",
      "",
      "\ud800",
    ]) {
      const reply = run(api, { fetch_files: [name] });
      await agent.result((await agent.takeJob()).lease_id);
      expect(await reply).toMatchObject({ status: 200, json: { status: "Success", files: {} } });
    }
  }),
]);

const at = (api: Api, path: string, init: RequestInit = {}): Promise<Response> =>
  fetch(`${api.url}/compat/librechat${path}`, init);

async function told(answer: Response | Promise<Response>): Promise<unknown[]> {
  const { status } = await answer;
  return [status, await (await answer).json()];
}

const exec = (api: Api, fields: object, headers: Record<string, string> = {}) =>
  at(api, "/exec", { method: "POST", headers, body: JSON.stringify(fields) });

function form(files: Readonly<Record<string, string>>): FormData {
  const all = new FormData();
  all.append("kind", "user");
  for (const [name, text] of Object.entries(files)) all.append("file", new Blob([text]), name);
  return all;
}

interface Uploaded {
  storage_session_id: string;
  files: { fileId: string; filename: string }[];
}

async function upload(
  api: Api,
  path: string,
  files: Readonly<Record<string, string>>,
): Promise<Uploaded> {
  const answer = await at(api, path, { method: "POST", body: form(files) });
  expect(answer.status).toBe(200);
  return (await answer.json()) as Uploaded;
}

const sha256Of = (text: string): string => createHash("sha256").update(text).digest("hex");
const id = expect.stringMatching(/^[A-Za-z0-9_-]{21}$/) as string;
const error = expect.any(String) as string;

export const librechatRows = on(server, [
  test("LibreChat: code gets uploaded files and those of earlier code; what it leaves is a session", async (api) => {
    const agent = await api.connected();
    const given = await upload(api, "/upload", { "in/a.csv": "1,2" });
    expect(given).toEqual({
      message: "success",
      storage_session_id: id,
      session_id: given.storage_session_id,
      files: [{ fileId: id, filename: "in/a.csv" }],
    });
    const file = {
      id: given.files[0]!.fileId,
      name: "in/a.csv",
      storage_session_id: given.storage_session_id,
    };
    const asked = { lang: "py", code: "1", args: ["x"], timeout: 2200, user_id: "u" };
    const first = exec(api, { ...asked, files: [{ ...file, kind: "user", resource_id: "u" }] });
    const job = await agent.takeJob();
    expect(job).toMatchObject({ timeout_s: 3, files: [{ name: "work/in/a.csv", size_bytes: 3 }] });
    const exact = '{ "n": 1.0, "big": 12345678901234567890 }\n';
    await agent.upload(job.lease_id, "in/a.csv", "1,2");
    await agent.upload(job.lease_id, "plot.png", "png");
    await agent.result(job.lease_id, { stdout_base64: btoa("out"), output_json: exact });
    const ran = (await (await first).json()) as { session_id: string; files: { id: string }[] };
    const left = (name: string) => ({ id, name, storage_session_id: ran.session_id });
    expect(ran).toEqual({
      session_id: id,
      stdout: "out",
      stderr: "",
      files: [{ ...file, inherited: true }, left("plot.png"), left("result.json")],
    });

    const second = exec(api, { lang: "bash", code: "ls", files: ran.files });
    const next = await agent.takeJob();
    expect(next.files?.map(({ name }) => name).sort()).toEqual([
      "work/in/a.csv",
      "work/plot.png",
      "work/result.json",
    ]);
    await agent.result(next.lease_id);
    expect((await second).status).toBe(200);

    const [, plot, result] = ran.files;
    const downloaded = await at(api, `/download/${ran.session_id}/${plot!.id}?kind=user&id=u`);
    expect([downloaded.headers.get("Content-Type"), await downloaded.text()]).toEqual([
      "image/png",
      "png",
    ]);
    const output = await at(api, `/download/${ran.session_id}/${result!.id}`);
    expect(await output.text()).toBe(exact);
    const givenOn = next.files?.find(({ name }) => name === "work/result.json");
    expect(givenOn).toMatchObject({ size_bytes: exact.length, sha256: sha256Of(exact) });
  }),
  test("LibreChat: a result.json that is no JSON object is a file of the code, which did not fail", async (api) => {
    const agent = await api.connected();
    const asked = exec(api, { lang: "py", code: "1" });
    const { lease_id } = await agent.takeJob();
    await agent.upload(lease_id, "result.json", "[1.0]");
    const error = { type: "json_error", message: "not usable", phase: "execution" } as const;
    await agent.result(lease_id, { status: "failed", exit_code: 0, error });
    const { session_id, stderr, files } = (await (await asked).json()) as {
      session_id: string;
      stderr: string;
      files: { id: string; name: string }[];
    };
    expect([stderr, files.map(({ name }) => name)]).toEqual(["", ["result.json"]]);
    const file = await at(api, `/download/${session_id}/${files[0]!.id}`);
    expect(await file.text()).toBe("[1.0]");
  }),
  test("LibreChat: files of an upload are listed, described, and removed one by one", async (api) => {
    const all = { "one.txt": "1", "skill/two.csv": "22", "../three": "3" };
    const { storage_session_id: session, files } = await upload(api, "/upload/batch", all);
    expect(files).toEqual([
      { status: "success", filename: "one.txt", fileId: id },
      { status: "success", filename: "skill/two.csv", fileId: id },
      { status: "error", filename: "../three", error },
    ]);
    await upload(api, "/upload", { "other.txt": "" });
    const listed = await at(api, `/files/${session}?detail=full`);
    const described = (n: number, name: string, ending: string) => ({
      name: `${session}/${files[n]!.fileId}${ending}`,
      id: files[n]!.fileId,
      storage_session_id: session,
      size: n + 1,
      etag: expect.any(String) as string,
      lastModified: expect.stringMatching(/Z$/) as string,
      metadata: { "original-filename": name },
    });
    const [one, two] = [described(0, "one.txt", ".txt"), described(1, "skill/two.csv", ".csv")];
    expect(await listed.json()).toEqual([two, one]);
    const object = `/sessions/${session}/objects/${files[1]!.fileId}`;
    expect(await told(at(api, object))).toEqual([200, two]);
    expect((await at(api, object, { method: "DELETE" })).status).toBe(200);
    expect(await told(at(api, object))).toEqual([404, { error }]);
    expect((await at(api, object, { method: "DELETE" })).status).toBe(404);
  }),
  test("LibreChat: refusals have its form; a key in a request counts instead of compat_key", async (api) => {
    expect(await told(exec(api, { lang: "d", code: "" }))).toEqual([
      400,
      { error: "Unsupported language: d" },
    ]);
    const file = { id: "A".repeat(21), name: "a", storage_session_id: "A".repeat(21) };
    expect(await told(exec(api, { lang: "py", code: "", files: [file] }))).toEqual([
      404,
      { error },
    ]);
    const files = Array.from({ length: 101 }, () => file);
    expect(await told(exec(api, { lang: "py", code: "", files }))).toEqual([400, { error }]);
    expect(await told(at(api, "/files/no"))).toEqual([404, { error }]);
    expect(await told(at(api, "/upload", { method: "POST", body: "x" }))).toEqual([400, { error }]);
    const asked = { lang: "py", code: "1" };
    for (const [name, value] of Object.entries({ "X-API-Key": "no", Authorization: "Bearer no" })) {
      expect((await exec(api, asked, { [name]: `${value}-0123456789abcdef` })).status).toBe(401);
    }
    const agent = await api.connected();
    const reply = exec(api, asked, { Authorization: `Bearer ${apiKeys[1]}` });
    const job = await agent.takeJob();
    await agent.result(job.lease_id);
    expect((await reply).status).toBe(200);
  }),
]);
