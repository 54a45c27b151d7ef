import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { log } from "../../../api/testing/contract/api.ts";
import { ScriptedAgent } from "../../../api/testing/scripted-agent.ts";
import { agentToken, generations, key, type McpClient, toolNames } from "./generations.ts";

interface Running {
  url: string;
  close(): Promise<void>;
}

interface Answer {
  id: number;
  result?: { contents?: { blob: string }[] };
  error?: { code: number; message: string };
}

const request = (id: number, method: string, params: object) => {
  return { jsonrpc: "2.0", id, method, params };
};

const cancelled = (requestId: number) => {
  return { jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId } };
};

/** The statements about the endpoint, with an agent that does what each of them says. */
export function describeMcp(start: () => Promise<Running>, isBehindProxy = false): void {
  let service: Running;
  let agent: ScriptedAgent;
  beforeAll(async () => {
    service = await start();
  });
  beforeEach(() => {
    agent = new ScriptedAgent(service.url, agentToken);
    return () => agent.close();
  });
  afterAll(() => service?.close());

  describe.each(Object.entries(generations))("%s over HTTP", (_name, { http }) => {
    const connect = () => http({ url: service.url, key });
    describeClient(connect, () => ({ agent, url: service.url }));
    if (!isBehindProxy) describeCancelling(connect, () => ({ agent, url: service.url }));
  });

  const send = (path: string, init: RequestInit = {}) => fetch(`${service.url}${path}`, init);
  const withKey = { Authorization: `Bearer ${key}` };
  const initialize = {
    method: "POST",
    headers: {
      ...withKey,
      "Content-Type": "application/json",
      Accept: "application/json, text/event-stream",
    },
    body: JSON.stringify({
      jsonrpc: "2.0",
      id: 1,
      method: "initialize",
      params: {
        protocolVersion: "2025-11-25",
        capabilities: {},
        clientInfo: { name: "test", version: "1" },
      },
    }),
  };
  const from = (origin: string) => ({
    ...initialize,
    headers: { ...initialize.headers, Origin: origin },
  });

  test("without a key, 401 is a plain Bearer challenge, and no OAuth server is found", async () => {
    const refused = await send("/mcp", { ...initialize, headers: {} });
    expect(refused.status).toBe(401);
    expect(refused.headers.get("WWW-Authenticate")).toBe('Bearer realm="airlock"');
    for (const [method, path] of [
      ["GET", "/.well-known/oauth-protected-resource"],
      ["GET", "/.well-known/oauth-protected-resource/mcp"],
      ["GET", "/.well-known/oauth-authorization-server"],
      ["GET", "/.well-known/openid-configuration"],
      ["POST", "/register"],
    ] as const) {
      const reply = await send(path, { method });
      expect(reply.status).toBe(404);
      expect(await reply.json()).toMatchObject({ code: "not_found" });
    }
  });

  test("initialize gives a session id, and other methods than POST are 405", async () => {
    const reply = await send("/mcp", initialize);
    expect(reply.status).toBe(200);
    expect(reply.headers.get("Mcp-Session-Id")).toMatch(/^[0-9a-f-]{36}$/);
    await reply.text();
    for (const method of ["GET", "DELETE"]) {
      expect((await send("/mcp", { method, headers: withKey })).status).toBe(405);
    }
  });

  const sendBatch = async (...messages: object[]) => {
    const reply = await send("/mcp", { ...initialize, body: JSON.stringify(messages) });
    const text = await reply.text();
    return { status: reply.status, text, answers: [text && JSON.parse(text)].flat() as Answer[] };
  };
  const submit = async () => {
    const { headers } = initialize;
    const body = JSON.stringify({ code: "1" });
    const reply = await send("/execute/async", { method: "POST", headers, body });
    return ((await reply.json()) as { job_id: string }).job_id;
  };

  test("the answers to a batch hold 5 MiB of files; reads beyond that are errors", async () => {
    const jobId = await submit();
    const { lease_id } = await agent.takeJob();
    await agent.upload(lease_id, "large", new Uint8Array(3 * 1024 * 1024).fill(255));
    await agent.result(lease_id);
    const uri = `airlock://jobs/${jobId}/artifacts/large`;
    const reads = [1, 2, 3].map((id) => request(id, "resources/read", { uri }));
    const { status, answers } = await sendBatch(...reads);
    expect(status).toBe(200);
    const blobs = answers.flatMap(({ result }) => result?.contents ?? []);
    expect(blobs.map(({ blob }) => blob.length)).toEqual([4 * 1024 * 1024]);
    const errors = answers.flatMap(({ error }) => error ?? []);
    expect(errors).toHaveLength(2);
    for (const { code, message } of errors) {
      expect([code, message]).toEqual([-32600, expect.stringMatching(/a request of its own/)]);
    }
  });

  test("a request that its own batch cancels is not run and gets no answer", async () => {
    const jobId = await submit();
    const cancel = request(1, "tools/call", { name: "cancel_job", arguments: { job_id: jobId } });
    const { status, answers } = await sendBatch(cancel, request(2, "ping", {}), cancelled(1));
    expect([status, answers.map(({ id }) => id)]).toEqual([200, [2]]);
    const nothing = await sendBatch(cancelled(1), cancel);
    expect([nothing.status, nothing.text]).toEqual([202, ""]);
    const { lease_id, execution_id } = await agent.takeJob();
    expect(execution_id).toBe(jobId);
    await agent.result(lease_id);
  });

  test("a batch of cancellations of unknown requests takes as long as one", async () => {
    const { headers } = initialize;
    const reply = await send("/mcp", {
      method: "POST",
      headers: { ...headers, "Mcp-Session-Id": crypto.randomUUID() },
      body: JSON.stringify(Array.from({ length: 100 }, (_, id) => cancelled(id))),
      // Each looks twice for its job, a second apart.
      signal: AbortSignal.timeout(20_000),
    });
    expect(reply.status).toBe(202);
  });

  test("only pages of the service and of allowed_origins may use it", async () => {
    const own = await send("/mcp", from(service.url));
    expect(own.status).toBe(200);
    expect(own.headers.get("Access-Control-Allow-Origin")).toBeNull();
    await own.text();

    const allowed = await send("/mcp", from("https://app.example"));
    expect(allowed.status).toBe(200);
    expect(allowed.headers.get("Access-Control-Allow-Origin")).toBe("https://app.example");
    expect(allowed.headers.get("Access-Control-Expose-Headers")).toContain("Mcp-Session-Id");
    await allowed.text();
    const asked = await send("/mcp", {
      method: "OPTIONS",
      headers: {
        Origin: "https://app.example",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,mcp-session-id",
      },
    });
    expect(asked.status).toBe(204);
    expect(asked.headers.get("Access-Control-Allow-Headers")).toContain("authorization");

    const refused = await send("/mcp", from("https://evil.example"));
    expect(refused.status).toBe(403);
    expect(await refused.json()).toMatchObject({ code: "forbidden" });
  });
}

/** The statements that hold for every client, over every transport. */
export function describeClient(connect: () => Promise<McpClient>, world: () => World): void {
  let client: McpClient;
  let agent: ScriptedAgent;
  beforeAll(async () => {
    client = await connect();
    return () => client.close();
  });
  beforeEach(() => {
    ({ agent } = world());
  });
  test("tools are listed with the job types, their packages and limits", async () => {
    const tools = await client.listTools();
    expect(tools.map(({ name }) => name)).toEqual(toolNames);
    for (const part of ["- ml: Python 3", "numpy==2.3.4", "300 s", "at most 600 s", "/output/"]) {
      expect(tools[0]?.description).toContain(part);
    }
  });

  test("numbers reach the code, and come back, as they were written", async () => {
    const numbers = '{"big":1152921504606846976,"minus":-0.0,"one":1.0,"list":[1e400,[2.50]]}';
    const call = (message: object) =>
      fetch(`${world().url}/mcp`, {
        method: "POST",
        headers: {
          Authorization: `Bearer ${key}`,
          "Content-Type": "application/json",
          Accept: "application/json, text/event-stream",
        },
        body: JSON.stringify(message).replaceAll('"NUMBERS"', numbers),
      });
    const params = {
      name: "execute_code",
      arguments: { code: "1", timeout: 30, input_data: "NUMBERS" },
    };
    for (const isBatch of [false, true]) {
      const message = { jsonrpc: "2.0", id: 1, method: "tools/call", params };
      const called = call(isBatch ? [message] : message);
      const { lease_id, input_json } = await agent.takeJob();
      expect(input_json).toBe(numbers);
      await agent.result(lease_id, { output_json: numbers });
      const answer = await (await called).text();
      expect(answer).toContain(`"output":${numbers}`);
      expect(answer).toContain(JSON.stringify(numbers).slice(1, -1));
    }
  });

  test("a message with too many values is refused before its tool sees it", async () => {
    const values = Array.from({ length: 100_000 }, () => 1);
    const reply = await fetch(`${world().url}/mcp`, {
      method: "POST",
      headers: { Authorization: `Bearer ${key}`, "Content-Type": "application/json" },
      body: JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/call", params: { values } }),
    });
    expect(reply.status).toBe(400);
    const text = await reply.text();
    expect(text).toContain("params.values");
    expect(text).toContain("it has more than 100000 keys and values");
  });

  test("code runs, and its text, output, pictures and files come back", async () => {
    const called = client.call("execute_code", { code: "print(1)", input_data: { a: 1 } });
    const { lease_id, code } = await agent.takeJob();
    expect(code).toBe("print(1)");
    await agent.upload(lease_id, "plot.png", "a picture");
    await agent.upload(lease_id, "data/a b.csv", "x,y\n");
    await agent.upload(lease_id, "large.png", "p".repeat(1024 * 1024 + 1));
    await agent.result(lease_id, {
      stdout_base64: btoa("one\n"),
      stderr_base64: btoa("two\n"),
      output_json: '{"three":3}',
    });
    const { content, structuredContent, isError } = await called;
    expect(isError).toBeFalsy();
    const id = structuredContent?.["job_id"] as string;
    const csv = `airlock://jobs/${id}/artifacts/data/a%20b.csv`;
    expect(structuredContent).toMatchObject({
      status: "succeeded",
      exit_code: 0,
      stdout: "one\n",
      stderr: "two\n",
      output: { three: 3 },
    });
    expect(structuredContent?.["files"]).toHaveLength(3);
    expect(content[0]?.["text"]).toMatch(/succeeded[^]*one[^]*two[^]*"three":3/);
    expect(content).toContainEqual({
      type: "image",
      data: btoa("a picture"),
      mimeType: "image/png",
    });
    expect(content).toContainEqual(
      expect.objectContaining({ type: "resource_link", name: "data/a b.csv", uri: csv }),
    );
    expect(content).toContainEqual(
      expect.objectContaining({ type: "resource_link", name: "large.png", size: 1024 * 1024 + 1 }),
    );

    expect((await client.read(csv)).contents[0]?.text).toBe("x,y\n");
    const listed = await client.call("list_artifacts", { job_id: id });
    expect(listed.structuredContent?.["files"]).toContainEqual({
      name: "data/a b.csv",
      size_bytes: 4,
      content_type: expect.stringContaining("text/csv") as unknown,
      uri: csv,
    });
    const none = await client.call("read_artifact", { job_id: id, name: "missing" });
    expect(none).toMatchObject({
      isError: true,
      _meta: { "airlock/problem": { code: "not_found" } },
    });
    const missing = client.read(`airlock://jobs/${id}/artifacts/missing`);
    await expect(missing).rejects.toThrow(/no file missing/);
  });

  test("files, stdin and args reach the code", async () => {
    const first = client.call("execute_code", { code: "1" });
    const { lease_id: firstLease } = await agent.takeJob();
    await agent.upload(firstLease, "table.csv", "x,y\n");
    await agent.result(firstLease);
    const { structuredContent: earlier } = await first;
    const { file_id } = (await (
      await fetch(`${world().url}/files?name=model.bin`, {
        method: "POST",
        headers: { Authorization: `Bearer ${key}` },
        body: "a model",
      })
    ).json()) as { file_id: string };

    const called = client.call("execute_code", {
      code: "1",
      language: "bash",
      stdin: "one\n",
      args: ["--two", ""],
      files: [
        { name: "a/text.txt", text: "ä" },
        { name: "bytes.bin", base64: "AP8A" },
        { name: "model.bin", file_id },
        { name: "table.csv", artifact: { job_id: earlier?.["job_id"], name: "table.csv" } },
      ],
    });
    const { lease_id, program, stdin, args, files = [] } = await agent.takeJob();
    expect([program?.file, stdin, args]).toEqual(["main.sh", "one\n", ["--two", ""]]);
    const contents = files.map(async ({ name, sha256 }) => {
      const { text } = await agent.get(`/leases/${lease_id}/files/${sha256}`);
      return [name, text];
    });
    expect(Object.fromEntries(await Promise.all(contents))).toEqual({
      "a/text.txt": "ä",
      "bytes.bin": "\0\ufffd\0",
      "model.bin": "a model",
      "table.csv": "x,y\n",
    });
    await agent.result(lease_id);
    expect((await called).structuredContent).toMatchObject({ status: "succeeded" });
  });

  test.each([
    [{ name: "../up", text: "" }, /files\.0\.name.*\.\./],
    [{ name: "data.json", text: "" }, /files\.0\.name.*data\.json/],
    [{ name: "two", text: "", base64: "" }, /files\.0.*exactly one/],
    [{ name: "none" }, /files\.0.*exactly one/],
    [{ name: "gone", file_id: crypto.randomUUID() }, /files\.0\.file_id.*expired/],
    [{ name: "path", path: "/etc/passwd" }, /path/],
  ])(
    "a file that is not valid is refused with the path of its field: %j",
    async (file, message) => {
      const called = await client.call("execute_code", { code: "1", files: [file] });
      expect(called.isError).toBe(true);
      expect(called.content[0]?.["text"]).toMatch(message);
    },
  );

  test("Python runs as a cell: values come as text, pictures as pictures", async () => {
    const called = client.call("execute_code", { code: "1" });
    const { lease_id, results } = await agent.takeJob();
    expect(results).toBe(true);
    const at = { stdout_at: 0, stderr_at: 0 };
    const picture = { "text/plain": "<Figure>", "image/png": btoa("a figure") };
    await agent.result(lease_id, {
      items: [
        { number: 1, main: false, data: picture, ...at },
        { number: 2, main: true, data: { "text/plain": "42" }, ...at },
      ],
    });
    const { content, structuredContent } = await called;
    expect(structuredContent).toMatchObject({ results: ["<Figure>", "42"] });
    expect(content[0]?.["text"]).toContain("--- results\n<Figure>\n42");
    expect(content[1]).toEqual({ type: "image", data: btoa("a figure"), mimeType: "image/png" });
    const other = client.call("execute_code", { code: "1", language: "bash" });
    const job = await agent.takeJob();
    expect(job.results).toBeUndefined();
    await agent.result(job.lease_id);
    await other;
  });

  test("a result shows at most 512 KiB of pictures, and names all files in its text", async () => {
    const called = client.call("execute_code", { code: "1" });
    const { lease_id } = await agent.takeJob();
    for (const [name, kiB] of [
      ["a.png", 400],
      ["b.png", 1024],
      ["c.png", 100],
    ] as const) {
      await agent.upload(lease_id, name, "p".repeat(kiB * 1024));
    }
    await agent.result(lease_id);
    const { content, structuredContent } = await called;
    expect(content.map(({ type }) => type)).toEqual(["text", "image", "resource_link", "image"]);
    expect(content[0]?.["text"]).toMatch(/b\.png \(image\/png, 1048576 bytes\)/);
    const whole = await client.call("read_artifact", {
      job_id: structuredContent?.["job_id"],
      name: "b.png",
    });
    expect(whole.content).toMatchObject([{ type: "image", data: btoa("p".repeat(1024 * 1024)) }]);
  });

  test("long files of text are read in parts that end at whole characters", async () => {
    const called = client.call("execute_code", { code: "1" });
    const { lease_id } = await agent.takeJob();
    const text = `a${"é".repeat(15_000)}€😀`;
    await agent.upload(lease_id, "long.txt", text);
    await agent.upload(lease_id, "bytes.bin", new Uint8Array([0, 255, 0]));
    await agent.result(lease_id);
    const { structuredContent: job } = await called;
    let read = "";
    for (let offset: unknown = 0; offset !== undefined;) {
      const part = await client.call("read_artifact", {
        job_id: job?.["job_id"],
        // Models also give the path at which the code wrote it.
        name: offset === 0 ? "/output/long.txt" : "long.txt",
        offset,
      });
      read += part.structuredContent?.["text"] as string;
      offset = part.structuredContent?.["next_offset"];
    }
    expect(read).toBe(text);
    const binary = await client.call("read_artifact", {
      job_id: job?.["job_id"],
      name: "bytes.bin",
    });
    expect(binary.content).toMatchObject([
      { type: "text", text: expect.stringContaining('"artifact"') as unknown },
      { type: "resource_link", name: "bytes.bin" },
    ]);
    const uri = binary.content[1]?.["uri"] as string;
    expect((await client.read(uri)).contents[0]?.blob).toBe("AP8A");
  });

  test("code that failed is a result with its error; all its text has at most 20,000 characters", async () => {
    const called = client.call("execute_code", { code: "1" });
    const { lease_id } = await agent.takeJob();
    await agent.result(lease_id, {
      status: "failed",
      exit_code: 1,
      error: { type: "value_error", message: "no such value", phase: "execution" },
      stdout_base64: btoa(`head${"o".repeat(100_000)}tail`),
      stderr_base64: btoa("e".repeat(3000)),
    });
    const { content, structuredContent, isError } = await called;
    expect(isError).toBe(true);
    expect(structuredContent).toMatchObject({
      status: "failed",
      stderr: "e".repeat(3000),
      error: { type: "value_error", message: "no such value" },
    });
    const text = content[0]?.["text"] as string;
    expect(text.length).toBeLessThanOrEqual(20_000);
    expect(text.length).toBeGreaterThan(19_000);
    expect(text).toMatch(/no such value[^]*heado+\n\[… \d+ or more characters[^]*otail/);
  });

  test.each([
    ["execute_code", { code: "1", timeout: 601 }, /600/, "timeout_too_long"],
    ["execute_code", {}, /^code: is required$/, "invalid_request"],
    ["execute_code", { source: "1" }, /\nsource: is not a field of this/, "invalid_request"],
    ["execute_code", { code: "1", wait_seconds: 51 }, /wait_seconds/, "invalid_request"],
    ["get_job", { job_id: crypto.randomUUID() }, /no job|does not exist|not found/i, "not_found"],
    ["get_job", { job_id: "x" }, /job_id/, "invalid_request"],
    ["read_artifact", { job_id: crypto.randomUUID(), name: "a" }, /./, "not_found"],
  ])(
    "wrong arguments of %s give a result with a text for the model and a problem for programs: %j",
    async (tool, given, words, code) => {
      const { isError, content, _meta } = await client.call(tool, given);
      expect(isError).toBe(true);
      expect(content[0]?.["text"]).toMatch(words);
      expect(_meta).toMatchObject({ "airlock/problem": { code } });
    },
  );

  test("an unknown tool is an error that names the tools", async () => {
    await expect(client.call("run_python", {})).rejects.toThrow(/run_python[^]*execute_code/);
  });

  test("no schema of a tool repeats the pattern of an id", async () => {
    expect(JSON.stringify(await client.listTools())).not.toContain("[0-9a-f");
  });

  describeJobTools(() => ({ ...world(), client }));
  describeSessionTools(() => ({ ...world(), client }));
}

interface World {
  agent: ScriptedAgent;
  url: string;
}

/** The statements about jobs that take longer than their call, and about their tools. */
function describeJobTools(world: () => World & { client: McpClient }): void {
  let client: McpClient;
  let agent: ScriptedAgent;
  beforeEach(() => {
    ({ client, agent } = world());
  });

  test("a job that outlives its call goes on, and get_job waits for its result", async () => {
    const { structuredContent: job } = await client.call("execute_code", {
      code: "1",
      wait_seconds: 0,
    });
    expect(job).toMatchObject({
      status: "queued",
      message: expect.stringContaining("get_job") as unknown,
    });
    const { lease_id } = await agent.takeJob();
    const waiting = client.call("get_job", { job_id: job?.["job_id"] });
    await agent.result(lease_id);
    expect((await waiting).structuredContent).toMatchObject({ status: "succeeded" });
  });

  test("cancel_job ends a job, and leaves one that has ended", async () => {
    const start = () => client.call("execute_code", { code: "1", wait_seconds: 0 });
    const { structuredContent: queued } = await start();
    const cancelled = await client.call("cancel_job", { job_id: queued?.["job_id"] });
    expect(cancelled.structuredContent).toMatchObject({ status: "cancelled" });
    const { structuredContent: ended } = await start();
    await agent.result((await agent.takeJob()).lease_id);
    const left = await client.call("cancel_job", { job_id: ended?.["job_id"] });
    expect(left.structuredContent).toMatchObject({ status: "succeeded" });
  });

  test("cancel_job waits for the end of a running job, which is no error", async () => {
    const { structuredContent: job } = await client.call("execute_code", {
      code: "1",
      wait_seconds: 0,
    });
    const { lease_id } = await agent.takeJob();
    const cancelled = client.call("cancel_job", { job_id: job?.["job_id"] });
    for (;;) {
      const { cancel } = await agent.poll({ free_slots: 0, wait_s: 2 });
      if (cancel.includes(lease_id)) break;
    }
    const error = { type: "cancelled", message: "", phase: "execution" } as const;
    await agent.result(lease_id, {
      status: "cancelled",
      exit_code: null,
      error,
      stdout_base64: btoa("so far\n"),
    });
    expect(await cancelled).toMatchObject({
      isError: false,
      structuredContent: { status: "cancelled", stdout: "so far\n" },
    });
  });

  test("progress shows the newest output, and a call that ends before its job has the output so far", async () => {
    const { promise: reported, resolve } = Promise.withResolvers<string>();
    const onprogress = ({ message = "" }: { message?: string | undefined }) => {
      if (message.includes("half way")) resolve(message);
    };
    const called = client.call("execute_code", { code: "1" }, { onprogress });
    const { lease_id, execution_id } = await agent.takeJob();
    await agent.post(lease_id, "started", { job_ref: null });
    await agent.post(lease_id, "logs", { parts: [log(0, "half way\n")] });
    expect(await reported).toContain(execution_id);
    const early = await client.call("get_job", { job_id: execution_id, wait_seconds: 0 });
    expect(early.structuredContent).toMatchObject({ status: "running", stdout: "half way\n" });
    await agent.result(lease_id);
    expect((await called).structuredContent).toMatchObject({ status: "succeeded" });
  });
}

/** The statement about cancelling; a proxy between client and service may hide that a client has gone. */
export function describeCancelling(connect: () => Promise<McpClient>, world: () => World): void {
  const statusOf = async (id: unknown) => {
    const headers = { Authorization: `Bearer ${key}` };
    const reply = await fetch(`${world().url}/jobs/${String(id)}`, { headers });
    return ((await reply.json()) as { status: string }).status;
  };

  test("a cancelled call ends its job", async () => {
    const { agent } = world();
    const client = await connect();
    const abort = new AbortController();
    const called = client.call("execute_code", { code: "1" }, { signal: abort.signal });
    called.catch(() => {});
    const { lease_id, execution_id } = await agent.takeJob();
    abort.abort("not wanted");
    await expect(called).rejects.toThrow("not wanted");
    for (;;) {
      const { cancel } = await agent.poll({ free_slots: 0, wait_s: 2 });
      if (cancel.includes(lease_id)) break;
    }
    const error = { type: "cancelled", message: "", phase: "execution" } as const;
    await agent.result(lease_id, { status: "cancelled", exit_code: null, error });
    expect(await statusOf(execution_id)).toBe("cancelled");
    await client.close();
  });
}

/** The statements about the tools of sessions. */
function describeSessionTools(world: () => World & { client: McpClient }): void {
  async function createSession(): Promise<string> {
    const { client, agent } = world();
    agent.maxSessions = 4;
    const created = client.call("create_session", { idle_timeout: 60 });
    await agent.startSession();
    const { structuredContent, content } = await created;
    expect(structuredContent).toMatchObject({ status: "ready" });
    const id = structuredContent?.["session_id"] as string;
    expect(content[0]?.["text"]).toBe(`Session ${id}: ready.`);
    return id;
  }

  test("a session runs code with the files of its calls, shows values and pictures, and is closed", async () => {
    const { client, agent } = world();
    const session_id = await createSession();
    const called = client.call("run_in_session", {
      session_id,
      code: "table",
      files: [{ name: "tables/a.csv", text: "x,y\n" }],
      restart: true,
    });
    const { lease_id, code, call, files } = await agent.takeCall();
    expect(code).toBe("table");
    expect(call).toMatchObject({ number: 1, context: "default", restart: true });
    expect(files).toMatchObject([{ name: "tables/a.csv", to: "work" }]);
    const at = { stdout_at: 0, stderr_at: 0 };
    const picture = { "text/plain": "<Figure>", "image/png": btoa("a figure") };
    await agent.upload(lease_id, "out.csv", "x\n");
    await agent.result(lease_id, {
      stdout_base64: btoa("one\n"),
      items: [
        { number: 1, main: false, data: picture, ...at },
        { number: 2, main: true, data: { "text/plain": "42" }, ...at },
      ],
    });
    const { structuredContent, content } = await called;
    expect(structuredContent).toMatchObject({
      status: "succeeded",
      stdout: "one\n",
      results: ["<Figure>", "42"],
      files: [{ name: "out.csv" }],
    });
    expect(content[1]).toEqual({ type: "image", data: btoa("a figure"), mimeType: "image/png" });

    const closed = await client.call("close_session", { session_id });
    expect(closed.structuredContent).toEqual({ session_id, status: "ended" });
    const late = await client.call("run_in_session", { session_id, code: "1" });
    expect(late).toMatchObject({
      isError: true,
      _meta: { "airlock/problem": { code: "session_ended", reason: "deleted" } },
    });
  });

  test("code that runs longer than wait_seconds goes on, and get_job waits for its result", async () => {
    const { client, agent } = world();
    const session_id = await createSession();
    const early = await client.call("run_in_session", { session_id, code: "1", wait_seconds: 0 });
    const job_id = early.structuredContent?.["job_id"];
    expect(early.content[0]?.["text"]).toContain("get_job");
    const { lease_id, execution_id } = await agent.takeCall();
    expect(execution_id).toBe(job_id);
    const waiting = client.call("get_job", { job_id });
    await agent.result(lease_id);
    expect((await waiting).structuredContent).toMatchObject({ status: "succeeded" });
  });

  test("a session that cannot start yet says why it waits", async () => {
    const { client } = world();
    const { structuredContent } = await client.call("create_session", { wait_seconds: 0 });
    expect(structuredContent).toMatchObject({
      status: "queued",
      message: expect.any(String) as unknown,
    });
    await client.call("close_session", { session_id: structuredContent?.["session_id"] });
  });

  test("a session that does not exist is refused", async () => {
    const { client } = world();
    const session_id = crypto.randomUUID();
    for (const [tool, more] of [
      ["run_in_session", { code: "1" }],
      ["close_session", {}],
    ] as const) {
      expect(await client.call(tool, { session_id, ...more })).toMatchObject({
        isError: true,
        _meta: { "airlock/problem": { code: "not_found" } },
      });
    }
  });
}
