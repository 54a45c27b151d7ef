import { expect } from "vitest";
import type { LeasedJob } from "../../../shared/wire/leases.ts";
import type { ScriptedAgent } from "../scripted-agent.ts";
import { type Api, apiKeys, body, holder, notShared, on, test } from "./api.ts";

const server = "with other protocols" as const;
const key = { "X-API-Key": apiKeys[0] };
const message = expect.any(String) as string;

interface Sandbox {
  sandboxID: string;
  envdAccessToken: string;
  trafficAccessToken: string;
}
interface Answer {
  status: number;
  text: string;
  headers: Headers;
  json: unknown;
}

async function ask(
  api: Api,
  method: string,
  path: string,
  headers: Record<string, string> = key,
  body?: string | object,
): Promise<Answer> {
  const isBody = typeof body === "string" || body instanceof FormData || body instanceof Uint8Array;
  const answer = await fetch(`${api.url}/compat/e2b${path}`, {
    method,
    headers: { ...(!isBody && { "Content-Type": "application/json" }), ...headers },
    ...(body !== undefined && { body: isBody ? (body as string) : JSON.stringify(body) }),
  });
  expect(answer.headers.get("Cache-Control")).toMatch(notShared);
  const text = await answer.text();
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch {
    json = undefined;
  }
  return { status: answer.status, text, headers: answer.headers, json };
}

const template = { templateID: "code-interpreter-v1" };

/** Makes a sandbox, which the agent serves. */
async function create(api: Api, agent: ScriptedAgent, fields: object = {}): Promise<Sandbox> {
  const answer = ask(api, "POST", "/v2/sandboxes", key, { ...template, ...fields });
  const { session_id } = await before(answer, agent.startSession());
  const { status, json } = await answer;
  expect(status).toBe(201);
  expect((json as Sandbox).sandboxID).toBe(session_id);
  return json as Sandbox;
}

/** A sandbox with its agent, and the headers of requests inside it. */
async function opened(api: Api) {
  const agent = holder(api);
  const { sandboxID, trafficAccessToken } = await create(api, agent);
  const inside = { "E2b-Sandbox-Id": sandboxID, "E2B-Traffic-Access-Token": trafficAccessToken };
  const end = async () =>
    expect((await ask(api, "DELETE", `/sandboxes/${sandboxID}`)).status).toBe(204);
  return { agent, inside, end };
}

/** The lines of an answer by their types: output and results are not ordered among each other. */
function linesOf(text: string): { type: string }[] {
  const lines = text.trimEnd().split("\n");
  return lines
    .map((line) => JSON.parse(line) as { type: string })
    .filter(({ type }) => type !== "keepalive")
    .toSorted((a, b) => a.type.localeCompare(b.type));
}

/** Serves one call while a request waits for it. */
async function serving(
  agent: ScriptedAgent,
  answer: Promise<Answer>,
  serve: (call: LeasedJob) => Promise<unknown>,
): Promise<Answer> {
  const call = await before(answer, agent.takeCall());
  await serve(call);
  return answer;
}

/** @throws Error if the answer comes first. */
async function before<T>(answer: Promise<Answer>, work: Promise<T>): Promise<T> {
  const refused = answer.then(({ text }) => Promise.reject(new Error(text)));
  return Promise.race([work, refused]);
}

const dataKeys = ({ sandboxID, envdAccessToken }: Sandbox) => ({
  "E2b-Sandbox-Id": sandboxID,
  "X-Access-Token": envdAccessToken,
});

export const e2bRows = on(server, [
  test("E2B: a sandbox is a session without an idle timeout, which the client makes, lists, keeps and ends", async (api) => {
    const agent = holder(api);
    // Another tenant has a job type "base"; clients before 2.51 always ask for the internet.
    const theirs = { templateID: "base", allow_internet_access: true, timeout: 60 };
    const asked = { ...theirs, metadata: { user: "a & b" }, envVars: { A: "b" } };
    const made = await create(api, agent, asked);
    const names = { templateID: "default", sandboxID: made.sandboxID, clientID: "airlock" };
    const token = made.envdAccessToken;
    expect(made).toEqual({
      ...names,
      envdVersion: "0.4.0",
      envdAccessToken: token,
      trafficAccessToken: token,
      domain: null,
    });
    const session = body(await api.get(`/sessions/${made.sandboxID}`, key));
    expect(session).toMatchObject({ idle_timeout: null, metadata: { user: "a & b" } });
    const one = await ask(api, "GET", `/sandboxes/${made.sandboxID}`);
    const shown = JSON.parse(one.text) as Record<string, string>;
    expect(shown).toMatchObject({
      ...names,
      state: "running",
      metadata: { user: "a & b" },
      memoryMB: 512,
    });
    const query = `metadata=${encodeURIComponent(`user=${encodeURIComponent("a & b")}`)}`;
    const listed = await ask(api, "GET", `/v2/sandboxes?${query}&limit=1`);
    expect(JSON.parse(listed.text)).toEqual([shown]);
    const others = await ask(api, "GET", "/v2/sandboxes?metadata=user%3Dbob");
    expect(JSON.parse(others.text)).toEqual([]);

    const path = `/sandboxes/${made.sandboxID}`;
    expect((await ask(api, "POST", `${path}/timeout`, key, { timeout: 600 })).status).toBe(204);
    const connected = await ask(api, "POST", `/v2${path}/connect`, key, { timeout: 60 });
    expect(JSON.parse(connected.text)).toMatchObject(names);
    const kept = JSON.parse((await ask(api, "GET", path)).text) as Record<string, string>;
    const longer = Date.parse(kept["endAt"]!) - Date.parse(shown["endAt"]!);
    expect(longer).toBeGreaterThan(400_000);
    expect((await ask(api, "DELETE", path)).status).toBe(204);
    for (const [method, where] of [
      ["DELETE", path],
      ["GET", path],
      ["POST", `${path}/timeout`],
    ] as const) {
      const gone = await ask(api, method, where, key, method === "POST" ? {} : undefined);
      expect([gone.status, JSON.parse(gone.text)]).toMatchObject([404, { code: 404 }]);
    }
  }),
  test("E2B: a token serves its sandbox's data alone, and no more once that has ended", async (api) => {
    const agent = holder(api);
    const [made, other] = [await create(api, agent), await create(api, agent)];
    const asked = { code: "x" };
    const answer = ask(api, "POST", "/execute", dataKeys(made), asked);
    await agent.result((await agent.takeCall()).lease_id);
    const { status, headers } = await answer;
    expect([status, headers.get("Content-Type")]).toEqual([200, "application/x-ndjson"]);
    expect(headers.get("Cache-Control")).toContain("no-transform");

    const [own, stolen] = [dataKeys(made), { ...dataKeys(made), "X-Access-Token": "no" }];
    const swapped = { ...dataKeys(made), "E2b-Sandbox-Id": other.sandboxID };
    for (const wrong of [stolen, swapped, { "E2b-Sandbox-Id": made.sandboxID }]) {
      expect((await ask(api, "GET", "/health", wrong)).status).toBe(401);
      expect((await ask(api, "POST", "/execute", wrong, asked)).status).toBe(401);
    }
    for (const sandbox of [made, other]) {
      const path = `/sandboxes/${sandbox.sandboxID}`;
      expect((await ask(api, "DELETE", path, own)).status).toBe(401);
    }
    expect((await ask(api, "GET", "/health", own)).status).toBe(204);
    for (const { sandboxID } of [made, other]) await ask(api, "DELETE", `/sandboxes/${sandboxID}`);
    for (const path of ["/health", "/contexts", "/files?path=a"]) {
      expect((await ask(api, "GET", path, own)).status).toBe(502);
    }
    expect((await ask(api, "POST", "/execute", own, { code: "1" })).status).toBe(502);
    const rpc = await ask(api, "POST", "/filesystem.Filesystem/Stat", own, { path: "a" });
    expect(JSON.parse(rpc.text)).toMatchObject({ code: "unavailable" });
  }),
  test("E2B: refusals have its form and name the field", async (api) => {
    const post = (fields: object, headers: Record<string, string> = key) =>
      ask(api, "POST", "/v2/sandboxes", headers, { templateID: "base", ...fields });
    for (const [fields, status, words] of [
      [{ autoPause: true }, 400, "autoPause"],
      [{ network: { allowOut: [] } }, 400, "network"],
      [{ templateID: "open", allow_internet_access: false }, 400, "allow_internet_access"],
      [{ templateID: "theirs", allow_internet_access: false }, 404, "no template theirs"],
      [{ templateID: "theirs", allow_internet_access: true }, 404, "no template theirs"],
      [{ timeout: 1e9 }, 400, "lifetime"],
      [{ templateID: "none" }, 404, "none"],
    ] as const) {
      const refused = await post(fields);
      const message = expect.stringContaining(words) as string;
      expect([refused.status, JSON.parse(refused.text)]).toEqual([
        status,
        { code: status, message },
      ]);
    }
    const wrong = await post({}, { "X-API-Key": "another-key-0123456789" });
    expect([wrong.status, JSON.parse(wrong.text)]).toMatchObject([401, { code: 401 }]);
    expect((await ask(api, "POST", "/sandboxes/x/pause")).status).toBe(501);
    for (const [query, word] of [
      ["order=asc", "order"],
      ["metadata=%2525", "metadata"],
    ]) {
      const listed = await ask(api, "GET", `/v2/sandboxes?${query}`);
      expect([listed.status, listed.text]).toEqual([400, expect.stringContaining(word!)]);
    }
  }),
]);

/** A message of Connect: flags, length, JSON. */
function envelope(value: object): Uint8Array {
  const text = new TextEncoder().encode(JSON.stringify(value));
  const head = new DataView(new ArrayBuffer(5));
  head.setUint32(1, text.length);
  return new Uint8Array([...new Uint8Array(head.buffer), ...text]);
}

function envelopes(stream: string): unknown[] {
  const bytes = new TextEncoder().encode(stream);
  const view = new DataView(bytes.buffer);
  const all: unknown[] = [];
  for (let at = 0; at < bytes.length;) {
    const end = at + 5 + view.getUint32(at + 1);
    const text = new TextDecoder().decode(bytes.subarray(at + 5, end));
    if (!text.includes("keepalive")) all.push([bytes[at], JSON.parse(text)]);
    at = end;
  }
  return all;
}

const failed = (
  type: "name_error" | "json_error" | "execution_timeout",
  text: string,
  exit_code: number | null,
) =>
  ({
    status: type === "execution_timeout" ? "timeout" : "failed",
    exit_code,
    error: { type, message: text, phase: "execution" },
  }) as const;

const contextOf = (id: unknown, cwd = "/home/user") => ({ id, language: "python", cwd });
const fileOf = (name: string, path: string) => ({ name, type: "file", path });
const errorOf = (code: string) => [2, { error: { code, message } }];

/** What clients ask inside a sandbox. */
export const e2bInsideRows = on(server, [
  test("E2B: a line tells a result in each of its forms, or the exception with its traceback; bash is a program, another language an exception", async (api) => {
    const { agent, inside, end } = await opened(api);
    const asked = { code: "x", context_id: null, language: null, env_vars: { A: "é" } };
    const ran = await serving(agent, ask(api, "POST", "/execute", inside, asked), async (call) => {
      expect(call).toMatchObject({ code: "x", timeout_s: 600, call: { env: { A: "é" } } });
      const at = { stdout_at: 0, stderr_at: 0 };
      const shown = {
        "text/plain": "'it'",
        "application/json": '{"a":[1.0,1152921504606846976]}',
        "text/x-own": "o",
      };
      await agent.result(call.lease_id, {
        ...failed("name_error", "NameError: name 'é' is not defined\nmore", 1),
        stdout_base64: Buffer.from("é\u2028\n").toString("base64"),
        stderr_base64: btoa("before\nTraceback (most recent call last):\nNameError\n"),
        items: [{ number: 1, main: true, data: shown, ...at }],
      });
    });
    expect(ran.status).toBe(200);
    // oxlint-disable-next-line no-control-regex -- a line of NDJSON ends with a control character
    expect(ran.text).toMatch(/^[\n\u0020-\u007e]*$/);
    expect(ran.text).toContain('"json":{"a":[1.0,1152921504606846976]}');
    const timestamp = expect.any(Number) as number;
    const traceback = expect.stringMatching(/^Traceback [^]*NameError\n$/) as string;
    const value = "name 'é' is not defined\nmore";
    expect(linesOf(ran.text)).toEqual([
      { type: "error", name: "NameError", value, traceback },
      { type: "number_of_executions", execution_count: 1 },
      {
        type: "result",
        is_main_result: true,
        text: "it",
        json: { a: [1, 2 ** 60] },
        extra: { "text/x-own": "o" },
      },
      { type: "stderr", text: message, timestamp },
      { type: "stdout", text: "é\u2028\n", timestamp },
    ]);
    const wrote = await serving(
      agent,
      ask(api, "POST", "/execute", inside, { code: "x" }),
      (call) =>
        agent.result(call.lease_id, failed("json_error", "/output/result.json is not usable", 0)),
    );
    expect(linesOf(wrote.text)).toEqual([{ type: "number_of_executions", execution_count: 2 }]);
    const bash = { code: "ls", language: "bash" };
    await serving(agent, ask(api, "POST", "/execute", inside, bash), async (call) => {
      expect(call.program!.run).toEqual(["bash", "-c", "ls"]);
      await agent.result(call.lease_id);
    });
    const other = await ask(api, "POST", "/execute", inside, { code: "1", language: "r" });
    expect(other.json).toMatchObject({
      type: "error",
      value: expect.stringContaining("r has no") as string,
    });
    await end();
  }),
  test("E2B: contexts are those of the session; one with a folder of its own enters it", async (api) => {
    const { agent, inside, end } = await opened(api);
    const made = (await ask(api, "POST", "/contexts", inside, {})).json as { id: string };
    expect(made).toEqual(contextOf(message));
    const entered = ask(api, "POST", "/contexts", inside, { cwd: "/home/user/a" });
    const { json } = await serving(agent, entered, async (call) => {
      expect(call.code).toContain('chdir("/output/a")');
      await agent.result(call.lease_id);
    });
    const second = json as { id: string };
    expect(second).toEqual(contextOf(message, "/home/user/a"));
    const list = async () => (await ask(api, "GET", "/contexts", inside)).json;
    expect(await list()).toEqual(["default", made.id, second.id].map((id) => contextOf(id)));
    const restart = ask(api, "POST", `/contexts/${made.id}/restart`, inside);
    const restarted = await serving(agent, restart, async (call) => {
      expect(call.call).toMatchObject({ restart: true, context: made.id });
      await agent.result(call.lease_id);
    });
    expect(restarted.status).toBe(204);
    expect((await ask(api, "DELETE", `/contexts/${made.id}`, inside)).status).toBe(204);
    expect(await list()).toEqual(["default", second.id].map((id) => contextOf(id)));
    const unknown = await ask(api, "POST", "/execute", inside, { code: "1", context_id: made.id });
    expect([unknown.status, unknown.json]).toEqual([404, undefined]);
    expect(unknown.text).toContain(made.id);
    const nowhere = ask(api, "POST", "/contexts", inside, { cwd: "/none" });
    const refused = await serving(agent, nowhere, (call) =>
      agent.result(call.lease_id, failed("name_error", "FileNotFoundError: /none", 1)),
    );
    expect([refused.status, refused.text]).toEqual([400, "cwd: FileNotFoundError: /none"]);
    const other = await ask(api, "POST", "/contexts", inside, { language: "r" });
    expect(other.status).toBe(400);
    await end();
  }),
  test("E2B: files below the home folder are those of the session's working folder", async (api) => {
    const { agent, inside, end } = await opened(api);
    const form = new FormData();
    form.append("file", new Blob(["1,2"]), "/home/user/in/a.csv");
    form.append("file", new Blob(["3"]), "b.csv");
    const upload = ask(api, "POST", "/files?username=user", inside, form);
    for (const name of ["in/a.csv", "b.csv"]) {
      const call = await agent.takeCall();
      expect(call.files).toMatchObject([{ name, to: "work" }]);
      await agent.result(call.lease_id);
    }
    const [first, second] = ["/home/user/in/a.csv", "/home/user/b.csv"] as const;
    expect((await upload).json).toEqual([fileOf("a.csv", first), fileOf("b.csv", second)]);
    for (const path of [first, "in/a.csv", "./in//a.csv", "/output/in/a.csv"]) {
      const asked = ask(api, "GET", `/files?path=${encodeURIComponent(path)}`, inside);
      const got = await serving(agent, asked, async (call) => {
        expect(call.call).toMatchObject({ fetch: ["in/a.csv"] });
        await agent.upload(call.lease_id, "_fetched/in/a.csv", "1,2");
        await agent.result(call.lease_id);
      });
      expect([got.status, got.text, got.headers.get("Content-Length")]).toEqual([200, "1,2", "3"]);
    }
    // A file for elsewhere is moved there. If that is refused, nothing stays, and the message names its place.
    const refusedForm = new FormData();
    refusedForm.append("file", new Blob(["x"]), "x");
    const elsewhere = ask(api, "POST", "/files?path=/etc/x", inside, refusedForm);
    const put = await agent.takeCall();
    const temporary = put.files![0]!.name;
    await agent.result(put.lease_id);
    const moved = await agent.takeCall();
    const told = { error: ["permission_denied", `/output/${temporary}`, "Read-only file system"] };
    await agent.result(moved.lease_id, { stdout_base64: btoa(JSON.stringify(told)) });
    const removed = await agent.takeCall();
    expect(JSON.stringify(removed)).toContain(temporary);
    await agent.result(removed.lease_id);
    expect((await elsewhere).json).toEqual({ code: 403, message: "/etc/x: Read-only file system" });
    // What is no plain file of the folder is copied by a program: behind a link, elsewhere, or missing.
    const copied = async (path: string, told: object, isBelow = false) => {
      const answer = ask(api, "GET", `/files?path=${encodeURIComponent(path)}`, inside);
      if (isBelow) await agent.result((await agent.takeCall()).lease_id);
      const call = await agent.takeCall();
      const { fetch: [copy] = [] } = call.call as { fetch?: string[] };
      expect(call.program!.run).toContainEqual(expect.stringContaining(copy!));
      const isRead = !("error" in told);
      if (isRead) await agent.upload(call.lease_id, `_fetched${copy}`, "root:");
      await agent.result(call.lease_id, { stdout_base64: btoa(JSON.stringify(told)) });
      if (isRead) {
        const removing = await agent.takeCall();
        expect(removing.program!.run).toEqual(["rm", "-f", copy]);
        await agent.result(removing.lease_id);
      }
      return answer;
    };
    for (const [path, isBelow] of [
      ["/etc/passwd", false],
      ["link", true],
    ] as const) {
      const got = await copied(path, {}, isBelow);
      expect([path, got.status, got.text]).toEqual([path, 200, "root:"]);
    }
    for (const [path, code, status] of [
      ["no", "not_found", 404],
      ["/home/user", "invalid_argument", 400],
      ["../a", "permission_denied", 403],
    ] as const) {
      const refused = await copied(path, { error: [code, "/x", "why"] }, path === "no");
      expect(refused.json).toEqual({ code: status, message: `${path}: why` });
    }
    await end();
  }),
  test("E2B: a command is a call whose output is a stream of Connect messages", async (api) => {
    const { agent, inside, end } = await opened(api);
    const headers = {
      ...inside,
      "Content-Type": "application/connect+json",
      "Connect-Timeout-Ms": "1500",
    };
    const start = (process: object, more: object = {}) =>
      ask(api, "POST", "/process.Process/Start", headers, envelope({ process, ...more }));
    const shell = { cmd: "/bin/bash", args: ["-l", "-c", "ls"] };
    const ran = await serving(
      agent,
      start({ ...shell, envs: { A: "b" }, cwd: "/home/user/a" }, { stdin: false }),
      async (call) => {
        expect(call).toMatchObject({ timeout_s: 2, call: { env: { A: "b" } } });
        expect(call.program!.run.slice(0, 2)).toEqual(["sh", "-c"]);
        expect(call.program!.run.slice(3)).toEqual(["/output/a", "/bin/bash", "-l", "-c", "ls"]);
        const stdout_base64 = Buffer.from("é").toString("base64");
        await agent.result(call.lease_id, { ...failed("name_error", "x", 3), stdout_base64 });
      },
    );
    const begun = [0, { event: { start: { pid: 1 } } }];
    expect(envelopes(ran.text)).toEqual([
      begun,
      [0, { event: { data: { stdout: Buffer.from("é").toString("base64") } } }],
      [
        0,
        {
          event: {
            end: { exitCode: 3, exited: true, status: "exit status 3", error: "exit status 3" },
          },
        },
      ],
      [2, {}],
    ]);
    const late = await serving(agent, start(shell), (call) =>
      agent.result(call.lease_id, failed("execution_timeout", "late", null)),
    );
    expect(envelopes(late.text)).toEqual([begun, errorOf("deadline_exceeded")]);
    const refusals = [await start(shell, { stdin: true }), await start({ args: [] })];
    for (const { status, text } of refusals) {
      expect([status, envelopes(text)]).toEqual([200, [errorOf("invalid_argument")]]);
    }
    const watched = await ask(
      api,
      "POST",
      "/filesystem.Filesystem/WatchDir",
      headers,
      envelope({}),
    );
    expect(envelopes(watched.text)).toEqual([errorOf("unimplemented")]);
    const killed = await ask(api, "POST", "/process.Process/SendSignal", inside, {});
    expect([killed.status, killed.json]).toEqual([501, { code: "unimplemented", message }]);
    await end();
    expect(envelopes((await start(shell)).text)).toEqual([errorOf("unavailable")]);
  }),
  test("E2B: what folders have is told by a program in the sandbox, in paths of E2B", async (api) => {
    const { agent, inside, end } = await opened(api);
    const asked: unknown[] = [];
    const rpc = (what: string, body: object, told: object) => {
      const answer = ask(api, "POST", `/filesystem.Filesystem/${what}`, inside, body);
      return serving(agent, answer, async (call) => {
        const [program, flag, , , args = "", home] = call.program!.run;
        expect([program, flag, home]).toEqual(["python3", "-I", "/home/user"]);
        asked.push(JSON.parse(args));
        await agent.result(call.lease_id, { stdout_base64: btoa(JSON.stringify(told)) });
      });
    };
    const entry = { name: "a", path: "/home/user/a", size: "1" };
    expect((await rpc("ListDir", { path: "." }, { entries: [entry] })).json).toEqual({
      entries: [entry],
    });
    expect((await rpc("Stat", { path: "/tmp/a" }, { entry })).json).toEqual({ entry });
    const move = { source: "a", destination: "/home/user/b" };
    expect((await rpc("Move", move, { entry })).json).toEqual({ entry });
    expect(asked).toEqual([
      ["ListDir", "/output", 1],
      ["Stat", "/tmp/a", 1],
      ["Move", "/output/a", "/output/b"],
    ]);
    for (const path of ["a\0", "\ud800"]) {
      const refused = await ask(api, "POST", "/filesystem.Filesystem/Stat", inside, { path });
      expect([refused.status, refused.json]).toEqual([400, { code: "invalid_argument", message }]);
    }
    for (const [status, code] of [
      [404, "not_found"],
      [409, "already_exists"],
      [403, "permission_denied"],
    ] as const) {
      const refused = await rpc("MakeDir", { path: "a" }, { error: [code, "/output/a", "why"] });
      expect([refused.status, refused.json]).toEqual([
        status,
        { code, message: "/home/user/a: why" },
      ]);
    }
    await end();
  }),
]);
