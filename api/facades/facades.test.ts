import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { type Config } from "../../shared/config/config.ts";
import { createApp } from "../app.ts";
import { syncResult } from "../http/examples.ts";
import { processMetrics } from "../platform/process.node.ts";
import { testDeps } from "../testing/temp-store.ts";
import { store, useOneStore } from "../testing/use-store.ts";
import { type Api, type Call, exceptionOf, execute } from "./facade.ts";
import { filesOf, librechat, nameId, readId, shortId, timeOf, uuidAt } from "./librechat.ts";
import { boundDownloads, createSequence, serveMcp, sessionHeader } from "./mcp.ts";
import { piston } from "./piston.ts";

describe("what ended a cell", () => {
  const trace = 'Traceback (most recent call last):\n  File "<cell 1>"\n';
  const failed = (type: "value_error" | "runtime_error", message: string) => {
    return { status: "failed", error: { type, message, phase: "execution" } } as const;
  };

  test("is nothing if it ended well", () => {
    expect(exceptionOf({ status: "succeeded", error: null }, "")).toBeUndefined();
  });

  test.each([
    ["ValueError: a: b\nc", "ValueError", "a: b\nc"],
    ["KeyboardInterrupt", "KeyboardInterrupt", ""],
    ["json.decoder.JSONDecodeError: x", "JSONDecodeError", "x"],
    ["Tool.forward.<locals>.FinalAnswer: safe:1", "FinalAnswer", "safe:1"],
  ])("%j is an exception with a name and a value", (message, name, value) => {
    const stderr = `warning\n${trace}${message}\n`;
    expect(exceptionOf(failed("value_error", message), stderr)).toEqual({
      name,
      value,
      traceback: `${trace}${message}\n`,
    });
  });

  test("has the type of the error as its name if it is no exception", () => {
    const ended = failed("runtime_error", "The code exited with status 3.");
    expect(exceptionOf(ended, "said\n")).toEqual({
      name: "runtime_error",
      value: "The code exited with status 3.",
      traceback: "said\n",
    });
  });
});

useOneStore();

test.each([
  ["dify/v1/sandbox/run", {}],
  ["dify/v1/sandbox/run", { "X-Api-Key": "not-a-key-of-16-characters" }],
  ["piston/api/v2/execute", {}],
])(
  "a request to %s without a key that holds takes no place: its body is not waited for",
  async (path, key) => {
    const compat: Config["compat"] = ["dify", "piston"];
    const config = { api_auth_enabled: true, api_keys: ["a-key-of-16-characters"], compat };
    const app = createApp(testDeps(store.db, store.folder, Date.now, config));
    let isRead = false;
    const pull = (controller: ReadableStreamDefaultController): void => {
      isRead = true;
      controller.close();
    };
    const body = new ReadableStream({ pull }, { highWaterMark: 0 });
    const headers = { "Content-Type": "application/json", ...key };
    const request = { method: "POST", body, headers, duplex: "half" as const };
    const { status } = await app.request(`/compat/${path}`, request);
    expect({ status, isRead }).toEqual({ status: 401, isRead: false });
  },
);

test("a tenant that takes every place leaves as many to tenants that have few", async () => {
  const operator = "an-operator-key-of-16";
  const app = createApp(
    testDeps(store.db, store.folder, Date.now, {
      api_auth_enabled: true,
      operator_keys: [operator],
      compat: ["e2b"],
      compat_held: 8,
    }),
  );
  const headers = { "X-Api-Key": operator, "Content-Type": "application/json" };
  await app.request("/tenants/held", { method: "PUT", headers, body: "{}" });
  const asked = { name: "held", tenant: "held", scopes: ["read"] };
  const made = await app.request("/keys", { method: "POST", headers, body: JSON.stringify(asked) });
  const { key } = (await made.json()) as { key: string };
  const list = async (of: string) =>
    (await app.request("/compat/e2b/sandboxes", { headers: { "X-Api-Key": of } })).status;

  const bodies: ReadableStreamDefaultController[] = [];
  const held = Array.from({ length: 8 }, async () => {
    const pull = (controller: ReadableStreamDefaultController) =>
      new Promise<void>(() => void bodies.push(controller));
    const body = new ReadableStream({ pull }, { highWaterMark: 0 });
    const request = { method: "POST", body, headers, duplex: "half" as const };
    return app.request("/compat/e2b/sandboxes", request);
  });
  await expect.poll(() => bodies.length, { timeout: 30_000 }).toBe(8);
  expect([await list(operator), await list(key)]).toEqual([429, 200]);
  for (const body of bodies) body.close();
  await Promise.all(held);
  expect(await list(operator)).toBe(200);
});

test("a request is counted once, under its own path, and its requests to the endpoints are not", async () => {
  const config = { api_auth_enabled: false, compat: ["e2b" as const] };
  const metrics = processMetrics();
  const deps = { ...testDeps(store.db, store.folder, Date.now, config), processMetrics: metrics };
  const app = createApp(deps);
  const headers = { "X-Api-Key": "anything" };
  const answer = await app.request("http://localhost/compat/e2b/sandboxes", { headers });
  expect(await answer.json()).toEqual([]);
  expect(answer.headers.get("X-Correlation-ID")).not.toBeNull();
  const counts = [
    ...(await metrics.text()).matchAll(/^airlock_http_request\w*_count\{(.*)\} (.*)$/gm),
  ];
  const labels = 'method="GET",route="/compat/e2b/*",status="200"';
  expect(counts.map(([, ...of]) => of)).toEqual([[labels, "1"]]);
});

test("a job whose answer has begun is not cancelled when its client's time is over: the answer would break off", async () => {
  const [lastMs, isStopping] = [20, () => false];
  const ran = { ...syncResult, status: "succeeded", resource_usage: null };
  const api: Api = async (_path, init) => {
    const body = new ReadableStream<string>({
      async start(controller) {
        controller.enqueue(" ");
        await sleep(5 * lastMs);
        if (init!.signal!.aborted) return controller.error(init!.signal!.reason);
        controller.enqueue(JSON.stringify(ran));
        controller.close();
      },
    });
    return new Response(body.pipeThrough(new TextEncoderStream()));
  };
  const signal = new AbortController().signal;
  const call = { api, signal, isStopping, onRunning: () => {}, room: { waiting: 0 } };
  expect(await execute(call, { code: "1" }, 1000, lastMs)).toEqual(ran);
});

test.each([
  ["python", 1, { code: "0" }],
  ["c", 1, { code: "0", language: "c", compile_timeout: 10 }],
  [
    "bash",
    2,
    { code: "0", command: expect.any(Array) as string[], files: [{ name: "work/b", text: "1" }] },
  ],
])("a program of Piston in %s with %d files is the job %o", async (language, count, expected) => {
  const jobs: object[] = [];
  const api: Api = async (_path, init) => {
    jobs.push(JSON.parse(init!.body as string) as object);
    const stdout = "python Python 3.12.1\nc gcc 14.2.0\nbash bash 5.2.1\n";
    return Response.json({ ...syncResult, stdout, status: "succeeded", resource_usage: null });
  };
  const files = ["a", "b"].slice(0, count).map((name, n) => ({ name, content: String(n) }));
  const call = {
    method: "POST",
    path: "/api/v2/execute",
    text: async () => JSON.stringify({ language, version: "*", files }),
    api,
    signal: new AbortController().signal,
    onRunning: () => {},
  } as unknown as Call;
  expect((await piston(false).answer(call)).status).toBe(200);
  const { timeout: _timeout, queue_timeout: _queue, ...job } = jobs[1] as Record<string, unknown>;
  expect(job).toEqual({ files: [], ...expected });
});

test("a file whose id is of the upload's own millisecond, and before the upload's, is listed", async () => {
  const at = Date.UTC(2026, 0, 1);
  const session = shortId("upload", uuidAt(at, new Uint8Array(10).fill(255)));
  const file = {
    name: `${session}/a.txt`,
    size_bytes: 1,
    sha256: "0".repeat(64),
    content_type: "text/plain",
    created_at: new Date(at).toISOString(),
    expires_at: new Date(at).toISOString(),
  };
  const own = uuidAt(at);
  const items = [own, uuidAt(at - 1)].map((file_id) => ({ ...file, file_id }));
  const page = { items, limit: 100, offset: 0, has_more: false, count: 2 };
  const call = { api: async () => Response.json(page) } as unknown as Call;
  const files = await filesOf(call, session);
  expect(files.map(({ id }) => id)).toEqual([shortId("file", own)]);
});

const uuids = [
  "019aa5f0-6c1e-7c3a-8d53-2f1f3a6b9c10",
  "00000000-0000-7000-8000-000000000000",
  "ffffffff-ffff-7fff-bfff-ffffffffffff",
];

test.each(uuids)(
  "%s has an id of 21 letters for each kind, and each id leads back to it",
  (uuid) => {
    for (const kind of ["execution", "upload", "file"] as const) {
      const id = shortId(kind, uuid);
      expect(id).toMatch(/^[A-Za-z0-9_-]{21}$/);
      expect(readId(id)).toEqual({ kind, uuid });
    }
  },
);

test.each(["", "short", "-".repeat(21), "A".repeat(22), `${"A".repeat(20)}é`])(
  "%j is refused as unknown",
  (id) => expect(() => readId(id)).toThrow(expect.objectContaining({ status: 404 })),
);

test("the id of a name has 21 letters, and no other name has it", async () => {
  const ids = await Promise.all(["a.txt", "b.txt", "a/b".repeat(300)].map(nameId));
  for (const id of ids) expect(id).toMatch(/^[A-Za-z0-9_-]{21}$/);
  expect(new Set(ids).size).toBe(3);
});

test("a UUIDv7 says its time, and the first one of a time is before all others of it", () => {
  const first = uuidAt(1_764_000_000_000);
  const other = uuidAt(1_764_000_000_000, new Uint8Array(10).fill(255));
  expect([timeOf(first).getTime(), timeOf(other).getTime()]).toEqual([
    1_764_000_000_000, 1_764_000_000_000,
  ]);
  expect(first < other).toBe(true);
  expect(readId(shortId("upload", other)).uuid).toBe(other);
});

const cancelled = (requestId: number) => ({
  jsonrpc: "2.0",
  method: "notifications/cancelled",
  params: { requestId },
});

/** The status of the answer, the requests to the API, and the calls that were counted. */
async function send(messages: object[] | "", answer: (path: string) => Response) {
  const asked: string[] = [];
  let counted = 1;
  const body = messages && JSON.stringify(messages);
  const headers = {
    "Content-Type": "application/json",
    Accept: "application/json, text/event-stream",
    [sessionHeader]: crypto.randomUUID(),
  };
  const request = new Request("http://localhost/mcp", { method: "POST", headers, body });
  // As the route does.
  await request.text();
  const response = await serveMcp(
    {
      request,
      body,
      countMore: async (calls) => void (counted += calls),
      isStopping: () => false,
      inSequence: (read) => read(),
    },
    {
      api: async (path) => {
        asked.push(path);
        return answer(path);
      },
      version: "0",
      keep: () => {},
    },
  );
  return { response, asked, counted };
}

const outage = () => new Response("{}", { status: 503, headers: { "Retry-After": "5" } });

test("a request with more messages than a batch may have cancels nothing", async () => {
  const messages = Array.from({ length: 101 }, (_, n) => cancelled(n));
  const { response, asked } = await send(messages, outage);
  expect([response.status, asked]).toEqual([400, []]);
});

test("a call that stores its job while it is cancelled is cancelled too, and what has ended is left", async () => {
  const jobs = ["running", "succeeded"].map((status, n) => ({ execution_id: `job-${n}`, status }));
  let looks = 0;
  const { response, asked } = await send([cancelled(1)], (path) => {
    const items = path.startsWith("/executions?") && ++looks === 2 ? jobs : [];
    return Response.json({ items, has_more: false });
  });
  expect(response.status).toBe(202);
  expect(asked.filter((path) => !path.startsWith("/executions?"))).toEqual(["/jobs/job-0/cancel"]);
});

test("an empty body is 400, as one that is no JSON", async () => {
  expect((await send("", outage)).response.status).toBe(400);
});

test("each message of a batch counts for the rate limit", async () => {
  const messages = [cancelled(1), cancelled(2), cancelled(3)];
  expect((await send(messages, outage)).counted).toBe(3);
});

test("a cancellation that the service cannot serve at the moment gets the service's own answer", async () => {
  const { response } = await send([cancelled(1)], outage);
  expect(response.status).toBe(503);
  expect(response.headers.get("Retry-After")).toBe("5");
});

const path = "/jobs/1/artifacts/a";
const file = (bytes: number) => new Uint8Array(bytes);
const sized = (bytes: number) => {
  return new Response(file(bytes), { headers: { "Content-Length": String(bytes) } });
};

test("of many reads at once, so many as there are turns are open, and all are answered", async () => {
  let open = 0;
  let most = 0;
  const inSequence = createSequence(3);
  const read = async () => {
    most = Math.max(most, ++open);
    for (let n = 0; n < 5; n++) await Promise.resolve();
    open--;
    return sized(1);
  };
  const reads = Array.from({ length: 20 }, () => boundDownloads(read, 1, inSequence)(path));
  expect((await Promise.all(reads)).every(({ ok }) => ok)).toBe(true);
  expect([most, open]).toEqual([3, 0]);
});

test("a read that fails gives its turn to the next", async () => {
  const inSequence = createSequence(1);
  const broken = boundDownloads(() => Promise.reject(new Error("no answer")), 1, inSequence);
  const [first, second] = [broken(path), boundDownloads(async () => sized(1), 1, inSequence)(path)];
  await expect(first).rejects.toThrow("no answer");
  expect((await second).status).toBe(200);
});

test("files of one request have a number of bytes together; other answers do not count", async () => {
  const api = boundDownloads(
    async () => sized(3),
    5,
    (read) => read(),
  );
  for (const other of ["/jobs/1/artifacts", "/executions/1", "/jobs/1/logs"]) await api(other);
  expect((await (await api(path)).arrayBuffer()).byteLength).toBe(3);
  await expect(api(path)).rejects.toThrow("5 bytes");
});

test("a run of LibreChat whose results are sent again goes on: the service has them already", async () => {
  const job = "019aa5f0-6c1e-7c3a-8d53-2f1f3a6b9c10";
  const token = btoa(JSON.stringify({ job, names: { ours: "theirs" }, files: [] }));
  const asked: string[] = [];
  const pending = { number: 2, name: "ours", arguments: {}, stdout_at: 0, stderr_at: 0 };
  const call = {
    method: "POST",
    path: "/exec/programmatic",
    text: async () =>
      JSON.stringify({ continuation_token: token, tool_results: [{ call_id: "1", result: 3 }] }),
    api: async (path: string) => {
      asked.push(path);
      return path.endsWith("/tool-calls/1")
        ? Response.json({ detail: "has an answer already" }, { status: 409 })
        : Response.json({ job_id: job, status: "running", calls: [pending] });
    },
    onRunning: () => {},
    signal: new AbortController().signal,
  } as unknown as Call;
  const answer = await librechat.answer(call);
  expect(await answer.json()).toMatchObject({
    status: "tool_call_required",
    tool_calls: [{ id: "2", name: "theirs" }],
  });
  expect(asked[0]).toBe(`/jobs/${job}/tool-calls/1`);
});
