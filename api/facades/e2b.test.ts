import { describe, expect, test } from "vitest";
import type { JobEvent } from "../../shared/wire/executions.ts";
import { createTokens } from "./e2b-control.ts";
import { belowHome, endOf, frame, readEvents, readFrame, toOurs, toTheirs } from "./e2b-envd.ts";
import { e2b, execute, programOf, resultOf } from "./e2b.ts";
import { type Call, Refusal } from "./facade.ts";

describe("frames of Connect", () => {
  const message = { process: { cmd: "é".repeat(200) } };

  test.each([
    ["too short", new Uint8Array(4)],
    ["cut", frame(message).subarray(0, -1)],
    ["with more behind it", new Uint8Array([...frame(message), 0])],
    ["compressed", frame(message, 1)],
  ])("one that is %s is refused", (_how, bytes) => {
    expect(() => readFrame(bytes)).toThrow(Refusal);
  });
});

test.each([
  ["1", null, { code: "1" }],
  ["", undefined, { code: "\n" }],
  ["exit 3", "bash", { command: ["bash", "-c", "exit 3"] }],
  ["!pip list\n!ls\n", "python", { command: ["bash", "-c", "pip list\nls\ntrue"] }],
  ["!ls\n1", "python", { code: "!ls\n1" }],
])("the code %j in %s is %j", (code, language, program) => {
  expect(programOf(code, language)).toEqual(program);
});

test("a result has its forms by their names, JSON as a value", () => {
  const data = {
    "text/plain": "'it''",
    "image/png": "iVBORw==",
    "application/json": '{"a":1}',
    "x/y": "",
  };
  expect(resultOf({ main: true, data })).toEqual({
    type: "result",
    is_main_result: true,
    text: "it'",
    png: "iVBORw==",
    json: { a: 1 },
    extra: { "x/y": "" },
  });
  const broken = { "text/plain": '"it\'s"', "application/json": "{" };
  expect(resultOf({ main: false, data: broken })).toMatchObject({ text: '"it\'s"', json: "{" });
});

test.each([
  ["a.txt", "/output/a.txt", "/home/user/a.txt"],
  ["/home/user/x/../a", "/output/a", "/home/user/a"],
  ["/home/user", "/output", "/home/user"],
  ["/home/users/a", "/home/users/a", "/home/users/a"],
  ["../../../tmp//t", "/tmp/t", "/tmp/t"],
])("the path %s is %s here, and %s to the client", (path, ours, theirs) => {
  expect(toOurs(path)).toBe(ours);
  expect(toTheirs(ours)).toBe(theirs);
  expect(belowHome(path)).toBe(ours.startsWith("/output/") ? ours.slice(8) : undefined);
});

test("a stream of events that stops before the end of the call is an error", async () => {
  const job_id = "019aa5f0-6c1e-7c3a-8d53-2f1f3a6b9c10";
  const data = { job_id, attempt: 1, at: "2026-01-01T00:00:00.000Z", text: "a\u2028b" };
  const told = { event: "stdout", data } as const;
  const events = readEvents(ReadableStream.from(["idle" as const, told]));
  expect(await events.next()).toEqual({ done: false, value: told });
  await expect(events.next()).rejects.toThrow("before the call had ended");
});

const ended = { exitCode: 3, exited: true, status: "exit status 3", error: "exit status 3" };
const killed = { exitCode: -1, exited: false, status: "signal: 9", error: "signal: 9" };

test.each([
  [
    "exits with 0",
    0,
    null,
    [{ event: { end: { exitCode: 0, exited: true, status: "exit status 0" } } }, {}],
  ],
  ["exits with 3", 3, "runtime_error", [{ event: { end: ended } }, {}]],
  ["ends by a signal", 137, "killed", [{ event: { end: killed } }, {}]],
  [
    "is late",
    null,
    "execution_timeout",
    [{ error: { code: "deadline_exceeded", message: "why" } }],
  ],
  ["is cancelled", 143, "cancelled", [{ error: { code: "canceled", message: "why" } }]],
  [
    "is cancelled before it ran",
    null,
    "cancelled",
    [{ error: { code: "canceled", message: "why" } }],
  ],
])("the messages about a command that %s", (_how, exit_code, type, messages) => {
  const error = type && { type, message: "why", phase: "execution" };
  const parts = endOf({ exit_code, error } as unknown as Parameters<typeof endOf>[0]);
  const told = parts.map(
    (part) => JSON.parse(new TextDecoder().decode(part.subarray(5))) as unknown,
  );
  expect(told).toEqual(messages);
});

const service = {
  tokens: createTokens(() => Promise.resolve(new Uint8Array(32))),
  maxTimeoutS: 60,
};

const callOf = (path: string, api: Call["api"], changes: Partial<Call> = {}): Call => ({
  method: "POST",
  path,
  query: new URLSearchParams(),
  headers: new Headers(),
  key: undefined,
  networkOf: () => "none",
  bytes: () => Promise.resolve(new Uint8Array()),
  text: () => Promise.resolve(""),
  form: () => Promise.resolve([]),
  api,
  signal: new AbortController().signal,
  onRunning: () => {},
  isStopping: () => false,
  room: { waiting: 0 },
  ...changes,
});

/** Restarts a context of a sandbox, of a service that answers as the two statuses say. */
async function restart(restarted: number, session: number, id = "s") {
  const asked: string[] = [];
  const api: Call["api"] = (path) => {
    asked.push(path);
    const status = path.endsWith("/restart") ? restarted : session;
    return Promise.resolve(Response.json({ detail: "no" }, { status }));
  };
  const headers = new Headers({ "E2b-Sandbox-Id": id });
  const call = callOf("/contexts/c/restart", api, { headers, key: "key" });
  const answer = await e2b(service).answer(call);
  return { status: answer.status, asked };
}

test("a call is one request; the sandbox is looked up for one that is refused, to say whether it is gone", async () => {
  const path = "/sessions/s";
  expect(await restart(200, 404)).toEqual({ status: 204, asked: [`${path}/restart`] });
  expect(await restart(409, 404)).toEqual({ status: 502, asked: [`${path}/restart`, path] });
  expect(await restart(503, 404)).toEqual({ status: 503, asked: [`${path}/restart`] });
});

test.each([
  ["internal_error", "execution", 500],
  ["file_error", "execution", 502],
  ["cancelled", "execution", 502],
])(
  "a file that is not stored for %s: the service's own failure is no conflict",
  async (type, phase, status) => {
    const error = { type, message: "no", phase };
    const api: Call["api"] = (path) =>
      Promise.resolve(
        path === "/sessions/s"
          ? Response.json({ detail: "no" }, { status: 404 })
          : Response.json({ detail: "no", error }, { status: 409 }),
      );
    const file = { field: "file", name: "a.txt", bytes: new Uint8Array(1) };
    const headers = new Headers({ "E2b-Sandbox-Id": "s" });
    const call = callOf("/files", api, {
      headers,
      key: "key",
      form: () => Promise.resolve([file]),
    });
    await expect(e2b(service).answer(call)).rejects.toMatchObject({ status });
  },
);

test("a call of the file system that its sandbox's end cuts off is refused as one of a sandbox that is gone", async () => {
  const ended = {
    success: false,
    output: null,
    stdout: "",
    stderr: "",
    exit_code: 143,
    execution_time: 0,
    error: { type: "cancelled", message: "The session ended: deleted.", phase: "execution" },
    job_type: "default",
    job_id: "01a2032d-4aea-73b9-a34b-c8387a23e858",
  };
  const api: Call["api"] = (path) =>
    Promise.resolve(
      path.endsWith("/execute")
        ? Response.json(ended)
        : Response.json({ detail: "no" }, { status: 404 }),
    );
  const headers = new Headers({ "E2b-Sandbox-Id": "s" });
  const text = () => Promise.resolve(JSON.stringify({ path: "/" }));
  const call = callOf("/filesystem.Filesystem/Stat", api, { headers, key: "key", text });
  const answer = await e2b(service).answer(call);
  expect(await answer.json()).toEqual({
    code: "unavailable",
    message: "The sandbox was not found",
  });
});

test("the id of a sandbox is no path", async () => {
  expect((await restart(200, 404, "../keys?")).asked).toEqual(["/sessions/..%2Fkeys%3F/restart"]);
});

test("a sandbox whose job type is gone is listed beside the others", async () => {
  const id = "019aa5f0-6c1e-7c3a-8d53-2f1f3a6b9c10";
  const at = "2026-11-21T10:00:00.000Z";
  const session = {
    session_id: id,
    status: "ready",
    busy: false,
    reason: null,
    error: null,
    job_type: "gone",
    job_version: "latest",
    requirements: [],
    contexts: ["default"],
    calls: 0,
    created_at: at,
    started_at: at,
    ready_at: at,
    used_at: null,
    ended_at: null,
    expires_at: at,
    idle_timeout: null,
    python_version: null,
    container_backend: null,
    container_runtime: null,
  };
  const page = { items: [session], limit: 100, offset: 0, has_more: false, count: 1 };
  const api: Call["api"] = async (path) =>
    path.startsWith("/sessions?")
      ? Response.json(page)
      : Response.json({ detail: "no" }, { status: 404 });
  const headers = new Headers({ "X-Api-Key": "key" });
  const call = callOf("/v2/sandboxes", api, { method: "GET", headers, networkOf: () => undefined });
  const answer = await e2b(service).answer(call);
  expect(await answer.json()).toMatchObject([{ sandboxID: id, templateID: "gone", cpuCount: 0 }]);
});

test("events wait in the service until the client takes them", async () => {
  let sent = 0;
  const job_id = "01a2032d-4aea-73b9-a34b-c8387a23e858";
  const data = { job_id, attempt: 1, at: "2026-11-25T00:00:00.000Z", text: "x" };
  const event: JobEvent = { event: "stdout", data };
  const events = new ReadableStream<JobEvent | "idle">(
    {
      pull(controller) {
        if (++sent > 1000) controller.close();
        else controller.enqueue(event);
      },
    },
    { highWaterMark: 0 },
  );
  const api: Call["api"] = (_path, _init, takeEvents) => {
    takeEvents?.(events);
    return Promise.resolve(new Response());
  };
  const text = () => Promise.resolve(JSON.stringify({ code: "1" }));
  const call = callOf("/execute", api, { text });
  const answer = await execute(call, service, "session");
  const reader = (answer.body as ReadableStream<Uint8Array>).getReader();
  await reader.read();
  for (let turn = 0; turn < 10; turn++) await new Promise((resolve) => void setTimeout(resolve));
  expect(sent).toBeLessThan(5);
  const lines = [""];
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    lines.push(new TextDecoder().decode(value));
  }
  // Without the end of the call, as if the key had been revoked: clients must not take it for a success.
  const cut = { type: "error", name: "ConnectionError" };
  expect(JSON.parse(lines.pop()!)).toMatchObject(cut);
  expect(lines).toHaveLength(1000);
});

const secret = (fill: number) => () => Promise.resolve(new Uint8Array(32).fill(fill));
const tokens = createTokens(secret(1));
const key = "api-key-0-0123456789abcd";

test("a token brings the key back, for its session alone", async () => {
  const token = await tokens.seal(key, "session");
  expect(token).toMatch(/^[\w-]+$/);
  expect(token).not.toContain(key);
  expect(await tokens.open(token, "session")).toBe(key);
  expect(await tokens.open(token, "other")).toBeUndefined();
  expect(await createTokens(secret(1)).open(token, "session")).toBe(key);
  expect(await createTokens(secret(2)).open(token, "session")).toBeUndefined();
});

test("where the service has no keys, a token brings none", async () => {
  expect(await tokens.open(await tokens.seal(undefined, "session"), "session")).toBe("");
});

test("another text, or a changed token, is no token", async () => {
  const token = await tokens.seal(key, "session");
  const changed = (token.startsWith("A") ? "B" : "A") + token.slice(1);
  for (const text of ["", "no token", "é", "A".repeat(60), changed])
    expect(await tokens.open(text, "session")).toBeUndefined();
});

test("after a secret that could not be read, the next call reads it again", async () => {
  let reads = 0;
  const late = createTokens(() => {
    reads += 1;
    return reads === 1 ? Promise.reject(new Error("no database")) : secret(1)();
  });
  await expect(late.seal(key, "session")).rejects.toThrow("no database");
  expect(await tokens.open(await late.seal(key, "session"), "session")).toBe(key);
});
