import { frame } from "../../../api/facades/e2b-envd.ts";
import {
  type Answer,
  at,
  below,
  type Client,
  type Expected,
  isDraining,
  type Json,
  LostToFault,
  type Operation,
  type Place,
  withPlace,
} from "./client.ts";

/** The protocols of other services, each below /compat, and the Model Context Protocol. */

const says = (mark: string, name = "main"): string => `# ${name} of ${mark}\nprint("said ${mark}")`;

/** Where the protocol has no keys, requests are of the tenant of `compat_key`. */
const isDefault = ({ tenant }: Client): boolean => tenant.name === "default";

const base64 = (text: string): string => Buffer.from(text).toString("base64");

async function runDify(client: Client): Promise<void> {
  const mark = client.mark();
  const body = { language: "python3", code: says(mark), preload: `# preload of ${mark}` };
  const answer = await client.ask(at`POST /compat/dify/v1/sandbox/run`, { body });
  const data = { stdout: `said ${mark}\n`, stderr: "", error: "", exit_code: 0 };
  client.check(answer, { code: 0, message: "success", data });
  await client.ask(at`GET /compat/dify/v1/sandbox/dependencies`);
  await client.ask(at`GET /compat/dify/health`);
}

async function runPiston(client: Client): Promise<void> {
  const piston = below("/compat/piston/api/v2");
  const mark = client.mark();
  const runtimes = await client.ask(piston`GET /runtimes`, { isKeyless: true });
  client.check(runtimes, true, runtimes.text.includes('"python"'));
  const body = {
    language: "python",
    version: "*",
    files: [{ name: "main.py", content: `${says(mark)}\nprint(input())` }],
    stdin: `stdin of ${mark}`,
    run_timeout: 20_000,
  };
  const stdout = `said ${mark}\nstdin of ${mark}\n`;
  client.check(await client.ask(piston`POST /execute`, { body, isKeyless: true }), {
    run: { stdout, code: 0, signal: null },
  });
}

const fusion = below("/compat/sandbox-fusion");

async function askFusion(client: Client, place: Place, body: Json): Promise<Answer> {
  const answer = await client.ask(place, { body, isKeyless: true });
  client.loseIf(answer.json["status"] === "SandboxError", "a run of SandboxFusion");
  return answer;
}

async function runFusion(client: Client): Promise<void> {
  const mark = client.mark();
  const body = {
    language: "python",
    code: `${says(mark)}\nopen("out.txt", "w").write(open("in.txt").read().upper())`,
    files: { "in.txt": base64(`file of ${mark}`) },
    fetch_files: ["out.txt"],
    run_timeout: 60,
  };
  client.check(await askFusion(client, fusion`POST /run_code`, body), {
    status: "Success",
    run_result: { stdout: `said ${mark}\n` },
    files: { "out.txt": base64(`file of ${mark}`.toUpperCase()) },
  });
  await client.ask(fusion`GET /v1/ping`, { isKeyless: true });
}

async function runJupyter(client: Client): Promise<void> {
  const mark = client.mark();
  const body = { cells: [`x = "x of ${mark}"`, "x"], total_timeout: 120 };
  const answer = await askFusion(client, fusion`POST /run_jupyter`, body);
  client.check(answer, { status: "Success" });
  client.check(answer, true, answer.text.includes(`'x of ${mark}'`));
}

async function useLibreChat(client: Client): Promise<void> {
  const chat = below("/compat/librechat/v1");
  const mark = client.mark();
  const form = new FormData();
  const name = `${mark}.csv`;
  form.append("file", new Blob([`row of ${mark}`]), name);
  const uploaded = await client.ask(chat`POST /upload`, { body: form });
  const session = uploaded.json["storage_session_id"] as string;
  const [{ fileId: id }] = uploaded.json["files"] as [{ fileId: string }];
  const code = `${says(mark)}\nprint(open("${name}").read())\nopen("left.txt", "w").write("left of ${mark}")`;
  const given = [{ id, name, storage_session_id: session }];
  const ran = await client.ask(chat`POST /exec`, { body: { lang: "py", code, files: given } });
  client.check(ran, { stdout: `said ${mark}\nrow of ${mark}\n`, stderr: "" });
  const files = ran.json["files"] as { id: string; name: string; storage_session_id: string }[];
  const left = files.find((file) => file.name === "left.txt");
  client.check(ran, true, left !== undefined);
  await client.ask(chat`GET /download/${left!.storage_session_id}/${left!.id}`, {
    text: `left of ${mark}`,
  });
  const list = await client.ask(chat`GET /files/${session}`);
  client.check(list, true, list.text.includes(id));
  await client.ask(chat`GET /sessions/${session}/objects/${id}`);

  const tools = [{ name: "ask", parameters: { properties: { what: {} } } }];
  const asks = `print(await ask(what="question of ${mark}"))`;
  const programmatic = chat`POST /exec/programmatic`;
  const waits = await client.ask(programmatic, { body: { lang: "py", code: asks, tools } });
  client.check(waits, {
    status: "tool_call_required",
    tool_calls: [{ name: "ask", input: { what: `question of ${mark}` } }],
  });
  const [call] = waits.json["tool_calls"] as { id: string }[];
  const tool_results = [{ call_id: call!.id, result: `answer to ${mark}` }];
  const { continuation_token } = waits.json;
  const done = await client.ask(programmatic, { body: { continuation_token, tool_results } });
  client.check(done, { status: "completed", stdout: `answer to ${mark}\n` });

  await client.ask(chat`DELETE /files/${session}/${id}`);
  await client.ask(chat`GET /download/${session}/${id}`, { expect: [404] });
}

async function useE2b(client: Client): Promise<void> {
  const e2b = below("/compat/e2b");
  const mark = client.mark();
  const body = {
    templateID: "code-interpreter-v1",
    timeout: 300,
    metadata: { mark },
    envVars: { MARK: `env of ${mark}` },
  };
  const made = await client.ask(e2b`POST /v2/sandboxes`, { body });
  const { sandboxID: id = "", envdAccessToken: token = "" } = made.json as Record<string, string>;
  const inside = { "E2b-Sandbox-Id": id, "X-Access-Token": token };
  const ask = (place: Place, more: Json = {}): Promise<Answer> =>
    client.ask(place, { headers: inside, isKeyless: true, ...more });

  /** Runs a cell; resolves with the lines of its answer. */
  const lines = async (code: string, more: Json = {}): Promise<[Answer, Json[]]> => {
    const answer = await ask(e2b`POST /execute`, { body: { code, ...more } });
    const all = answer.text.trim().split("\n");
    return [answer, all.map((line) => JSON.parse(line) as Json)];
  };
  const expectLine = async (code: string, expected: Json, more: Json = {}): Promise<void> => {
    const [answer, all] = await lines(code, more);
    const failed = all.find(({ type, name }) => type === "error" && name !== "NameError");
    client.loseIf(failed !== undefined, "a cell of a sandbox failed");
    const line = all.find(({ type }) => type === expected["type"]);
    client.check(answer, expected as Expected, line);
  };
  const x = `x = "x of ${mark}"`;
  const shown = { type: "result", text: `x of ${mark}` };

  const use = async (): Promise<void> => {
    const one = await client.ask(e2b`GET /sandboxes/${id}`);
    client.check(one, { sandboxID: id, state: "running", metadata: { mark } });
    const list = await client.ask(e2b`GET /v2/sandboxes?metadata=${`mark=${mark}`}`);
    client.check(list, [{ sandboxID: id, metadata: { mark } }]);
    await client.ask(e2b`POST /sandboxes/${id}/timeout`, { body: { timeout: 600 } });
    const connected = await client.ask(e2b`POST /v2/sandboxes/${id}/connect`, { body: {} });
    client.check(connected, { sandboxID: id });
    await ask(e2b`GET /health`);

    await expectLine(`${x}\nx`, shown);
    await expectLine('import os; os.environ["MARK"]', { type: "result", text: `env of ${mark}` });
    const context = await ask(e2b`POST /contexts`, { body: {} });
    const context_id = context.json["id"] as string;
    await expectLine("x", { type: "error", name: "NameError" }, { context_id });
    await expectLine("x", shown);
    await ask(e2b`GET /contexts`);
    await ask(e2b`DELETE /contexts/${context_id}`);

    const form = new FormData();
    form.append("file", new Blob([`file of ${mark}`]), "a.txt");
    await ask(e2b`POST /files?path=/home/user/a.txt`, { body: form });
    await ask(e2b`GET /files?path=/home/user/a.txt`, { text: `file of ${mark}` });
    const rpc = (method: string, asked: Json) =>
      ask(e2b([`POST /filesystem.Filesystem/${method}`]), { body: asked });
    client.check(await rpc("Stat", { path: "/home/user/a.txt" }), {
      entry: { name: "a.txt", type: "FILE_TYPE_FILE" },
    });
    await rpc("MakeDir", { path: "/home/user/d" });
    await rpc("Move", { source: "/home/user/a.txt", destination: "/home/user/d/b.txt" });
    const folder = await rpc("ListDir", { path: "/home/user/d" });
    client.check(folder, { entries: [{ name: "b.txt" }] });
    await rpc("Remove", { path: "/home/user/d" });
    const start = frame({ process: { cmd: "echo", args: [`said ${mark}`], envs: {} } });
    const headers = { ...inside, "Content-Type": "application/connect+json" };
    const said = await ask(e2b`POST /process.Process/Start`, { headers, body: start });
    client.loseIf(said.text.includes("The agent was lost"), "a command of a sandbox failed");
    client.check(said, true, said.text.includes(base64(`said ${mark}\n`)));
    const hungUpMs = performance.now();
    const hungUp = {
      headers: inside,
      isKeyless: true,
      body: { code: "import time; time.sleep(60)" },
    };
    await client.hangUp(e2b`POST /execute`, hungUp, client.random.between(5, 400));
    const [, after] = await lines("x");
    if (after.some(({ name }) => name === "interpreter_ended")) {
      client.noteKill(hungUpMs);
      await ask(e2b`POST /contexts/${"default"}/restart`);
      await lines(x);
    }
    await expectLine("x", shown);

    // A token is for its own sandbox.
    const foreign = [...client.watch.owners].find(([, owner]) => owner !== client.tenant);
    const other = { ...inside, "E2b-Sandbox-Id": foreign?.[0] ?? "none" };
    await ask(e2b`GET /health`, { headers: other, expect: [401] });
  };
  await client.unlessLost(id, use);
  await client.ask(e2b`DELETE /sandboxes/${id}`);
  await ask(e2b`GET /health`, { expect: [502] });
}

const accept = { Accept: "application/json, text/event-stream" };

/** Sends a message of MCP; the answer is JSON, or an event with it. */
async function callMcp(client: Client, method: string, params: Json): Promise<[Answer, Json]> {
  const body = { jsonrpc: "2.0", id: 1, method, params };
  const name = params["name"] === undefined ? "" : `#${params["name"] as string}`;
  const answer = await client.ask(at([`POST /mcp${name}`]), { headers: accept, body });
  const text = answer.text.startsWith("{")
    ? answer.text
    : /^data: (\{.*"id":1.*)$/m.exec(answer.text)?.[1];
  const { result } = JSON.parse(text ?? "{}") as { result?: Json };
  const isError = result?.["isError"] === true;
  client.loseIf(result === undefined || isError, `MCP ${method}`);
  if (isError && isDraining(answer)) throw new LostToFault(`MCP ${method}`);
  client.check(answer, true, result !== undefined);
  return [answer, result!];
}

async function useMcp(client: Client): Promise<void> {
  const mark = client.mark();
  const tool = async (name: string, input: Json, expected: Expected): Promise<Json> => {
    const [answer, result] = await callMcp(client, "tools/call", { name, arguments: input });
    const { structuredContent, isError } = result as { structuredContent: Json; isError?: boolean };
    client.check(answer, true, !isError);
    const { job_id, status } = structuredContent;
    // It takes longer than a call waits.
    if (job_id !== undefined && (status === "queued" || status === "running"))
      return tool("get_job", { job_id, wait_seconds: 50 }, expected);
    client.check(answer, expected, structuredContent);
    return structuredContent;
  };
  const code = `${says(mark)}\nopen("left.txt", "w").write("left of ${mark}")\n"shown ${mark}"`;
  const input_data = { mark };
  const succeeded = { status: "succeeded", stdout: `said ${mark}\n` };
  const asked = { code, input_data, wait_seconds: 50 };
  const results = [`'shown ${mark}'`];
  const { job_id } = await tool("execute_code", asked, { ...succeeded, results });
  client.acknowledge(job_id as string, ["succeeded"], `said ${mark}\n`);
  await tool("get_job", { job_id }, succeeded);
  await tool("cancel_job", { job_id }, { status: "succeeded" });
  await tool("list_artifacts", { job_id }, { files: [{ name: "left.txt" }] });
  await tool("read_artifact", { job_id, name: "left.txt" }, { text: `left of ${mark}` });
  const uri = `airlock://jobs/${job_id as string}/artifacts/left.txt`;
  const [read, resource] = await callMcp(client, "resources/read", { uri });
  client.check(read, { contents: [{ uri, text: `left of ${mark}` }] }, resource);

  const { session_id } = await tool("create_session", { wait_seconds: 50 }, {});
  const run = (source: string) => ({ session_id, code: source, wait_seconds: 50 });
  await tool("run_in_session", run(`x = "x of ${mark}"\nx`), { results: [`'x of ${mark}'`] });
  await tool("run_in_session", run("x"), { results: [`'x of ${mark}'`] });
  const closed = { session_id: session_id as string, status: "ended" };
  await tool("close_session", { session_id }, closed);
}

export const facadeOperations: readonly Operation[] = [
  { name: "Dify", weight: 3, run: runDify },
  { name: "Piston", weight: 5, isPossible: isDefault, run: runPiston },
  { name: "SandboxFusion", weight: 5, isPossible: isDefault, run: runFusion },
  {
    name: "SandboxFusion's notebooks",
    weight: 1,
    ...withPlace(runJupyter),
    isPossible: (client) => isDefault(client) && client.watch.places > 0,
  },
  { name: "LibreChat", weight: 2, run: useLibreChat },
  { name: "E2B", weight: 1.5, ...withPlace(useE2b) },
  { name: "MCP", weight: 2, ...withPlace(useMcp) },
];
