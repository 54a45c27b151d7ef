import { describe, expect, test } from "vitest";
import { service, useTestService } from "../testing/test-service.ts";

const key = "key-0123456789abcdef";

describe("compat", () => {
  useTestService({
    key,
    api: { AIRLOCK_COMPAT: "sandbox-fusion,piston,dify", AIRLOCK_COMPAT_KEY: key },
  });

  async function call(path: string, body?: object | string, headers: Record<string, string> = {}) {
    const text = typeof body === "string" ? body : JSON.stringify(body);
    const answer = await fetch(`${service.url}/compat/${path}`, {
      method: body === undefined ? "GET" : "POST",
      headers,
      ...(body !== undefined && { body: text }),
    });
    const said = await answer.text();
    return { status: answer.status, json: said === "" ? null : (JSON.parse(said) as unknown) };
  }

  /** Of something that is not asserted further. */
  const anyNumber = expect.any(Number) as number;

  describe("sandbox-fusion", () => {
    const run = (fields: object) => call("sandbox-fusion/run_code", fields);
    const finished = (fields: object) => ({
      status: "Finished",
      execution_time: anyNumber,
      return_code: 0,
      stdout: "",
      stderr: "",
      ...fields,
    });
    const answer = (status: string, fields: object) => ({
      status: 200,
      json: {
        status,
        message: "",
        compile_result: null,
        executor_pod_name: null,
        files: {},
        run_result: null,
        ...fields,
      },
    });

    test("runs code with stdin and arguments; null is no field", async () => {
      const code = "import sys; print(input(), sys.argv[1:])";
      expect(
        await run({
          code,
          language: "python",
          stdin: "in",
          args: ["a b"],
          files: null,
          run_timeout: 20.5,
        }),
      ).toEqual(answer("Success", { run_result: finished({ stdout: "in ['a b']\n" }) }));
      expect(await run({ code: "", language: "python", memory_limit_MB: -1 })).toEqual(
        answer("Success", { run_result: finished({}) }),
      );
    });

    test("files are in the working folder, and come back", async () => {
      const code = `open("made.bin", "wb").write(bytes([0, 255]))
open("in/a.txt", "a").write("!")
print(open("in/a.txt").read())`;
      const files = { "in/a.txt": btoa("hi"), "absent.txt": null };
      const fetch_files = ["made.bin", "./in//a.txt", "/output/in/a.txt", "nothing"];
      expect(await run({ code, language: "python", files, fetch_files })).toEqual(
        answer("Success", {
          run_result: finished({ stdout: "hi!\n" }),
          files: {
            "made.bin": "AP8=",
            "./in//a.txt": btoa("hi!"),
            "/output/in/a.txt": btoa("hi!"),
          },
        }),
      );
    });

    test("files whose names all begin with a dot are there", async () => {
      const asked = { code: "print(open('.env').read())", files: { ".env": btoa("A=1") } };
      expect(await run({ language: "python", ...asked })).toEqual(
        answer("Success", { run_result: finished({ stdout: "A=1\n" }) }),
      );
    });

    test.each([
      ["a language that is none", { code: "x", language: "lean" }, "language"],
      ["no code", { language: "python" }, "code"],
    ])("%s is 422 in the protocol's form", async (_what, fields, field) => {
      const { status, json } = await run(fields);
      expect([status, json]).toEqual([
        422,
        {
          detail: [
            { loc: ["body"], msg: expect.stringContaining(field) as string, type: "value_error" },
          ],
        },
      ]);
    });

    test("ping answers, other routes are 404 in the protocol's form", async () => {
      expect(await call("sandbox-fusion/v1/ping")).toEqual({ status: 200, json: "pong" });
      expect(await call("sandbox-fusion/submit", { cells: [] })).toEqual({
        status: 404,
        json: { detail: expect.stringContaining("/run_code") as string },
      });
    });
  });

  describe("piston", () => {
    const run = (fields: object | string) => call("piston/api/v2/execute", fields);
    const stage = (fields: object) => ({
      stdout: "",
      stderr: "",
      output: "",
      code: 0,
      signal: null,
      message: null,
      status: null,
      cpu_time: anyNumber,
      wall_time: anyNumber,
      memory: anyNumber,
      ...fields,
    });

    test("runtimes are those of the image", async () => {
      const { status, json } = await call("piston/api/v2/runtimes");
      const found = json as { language: string; version: string; aliases: string[] }[];
      expect(status).toBe(200);
      expect(found.map(({ language }) => language)).toEqual(
        expect.arrayContaining(["python", "bash", "perl"]),
      );
      expect(found.map(({ language }) => language)).not.toContain("c++");
      for (const { version } of found) expect(version).toMatch(/^\d+\.\d+\.\d+$/);
    });

    test("runs the first file beside the others, also from a text body, by an alias and a version", async () => {
      const asked = {
        language: "py",
        version: "3.x",
        files: [
          { content: "import sys, lib; print(lib.x, input(), sys.argv[1:])" },
          { name: "lib.py", content: btoa("x = 42"), encoding: "base64" },
        ],
        stdin: "in",
        args: ["1"],
      };
      const expected = {
        status: 200,
        json: {
          language: "python",
          version: expect.stringMatching(/^3\./) as string,
          run: stage({ stdout: "42 in ['1']\n", output: "42 in ['1']\n" }),
        },
      };
      expect(await run(JSON.stringify(asked))).toEqual(expected);
    });

    test.each([
      [
        "an exit code",
        "echo out; echo err >&2; exit 2",
        { stdout: "out\n", stderr: "err\n", output: "out\nerr\n", code: 2, status: "RE" },
      ],
      [
        "a signal",
        "kill -SEGV $$",
        { code: null, signal: "SIGSEGV", status: "SG", message: expect.any(String) as string },
      ],
      [
        "the time limit",
        "sleep 60",
        { code: null, signal: "SIGKILL", status: "TO", message: expect.any(String) as string },
      ],
    ])("tells %s", async (_what, content, told) => {
      const asked = { language: "bash", version: "*", files: [{ content }], run_timeout: 900 };
      expect(await run(asked)).toMatchObject({ status: 200, json: { run: stage(told) } });
    });

    test.each([
      [
        "a runtime that is none",
        { language: "nope", version: "*", files: [{ content: "x" }] },
        "nope-\\* runtime is unknown",
      ],
      [
        "another version",
        { language: "python", version: "2.7", files: [{ content: "x" }] },
        "runtime is unknown",
      ],
      ["no files", { language: "python", version: "*", files: [] }, "files"],
      ["a body that is not JSON", "{", "not JSON"],
      [
        "a file that is not base64",
        { language: "bash", version: "*", files: [{ content: "%", encoding: "base64" }] },
        "files.0.content: is not base64",
      ],
      [
        "a limit above the service's",
        { language: "bash", version: "*", files: [{ content: "x" }], run_timeout: 9_000_000 },
        "max_timeout",
      ],
    ])("%s is 400 with a message", async (_what, asked, words) => {
      const { status, json } = await run(asked);
      expect([status, json]).toEqual([400, { message: expect.stringMatching(words) as string }]);
    });
  });

  describe("dify", () => {
    const run = (fields: object, headers = { "X-Api-Key": key }) =>
      call("dify/v1/sandbox/run", fields, headers);

    test("runs code behind its preload", async () => {
      const asked = {
        language: "python3",
        code: "print(x)",
        preload: "x = 1",
        enable_network: true,
      };
      expect(await run(asked)).toEqual({
        status: 200,
        json: {
          code: 0,
          message: "success",
          data: { stdout: "1\n", stderr: "", error: "", exit_code: 0 },
        },
      });
      expect(await run({ language: "python3", code: "import sys; sys.exit('no')" })).toEqual({
        status: 200,
        json: {
          code: 0,
          message: "success",
          data: {
            stdout: "",
            stderr: "no\n",
            error: "process exited with code 1\nno\n",
            exit_code: 1,
          },
        },
      });
    });

    test("a wrong body is 400 and a wrong key 401, as theirs", async () => {
      expect(await run({ language: "cobol", code: "" })).toEqual({
        status: 400,
        json: { code: -400, message: expect.stringContaining("language") as string, data: null },
      });
      const wrong = { "X-Api-Key": "another-key-0123456789" };
      expect(await run({ language: "python3", code: "" }, wrong)).toEqual({
        status: 401,
        json: null,
      });
      expect(await run({ language: "python3", code: "" }, { "X-Api-Key": "" })).toEqual({
        status: 401,
        json: null,
      });
      expect(await call("dify/health")).toEqual({ status: 200, json: "ok" });
    });
  });
});

describe("compat jupyter", () => {
  const few = { AIRLOCK_MAX_STDOUT_BYTES: "8192", AIRLOCK_MAX_ARTIFACT_BYTES: "65536" };
  const compat = { AIRLOCK_COMPAT: "sandbox-fusion,e2b", AIRLOCK_COMPAT_KEY: key };
  useTestService({ key, api: { ...compat, ...few } });

  async function runJupyter(asked: object): Promise<{ status: number; json: unknown }> {
    const url = `${service.url}/compat/sandbox-fusion/run_jupyter`;
    const answer = await fetch(url, { method: "POST", body: JSON.stringify(asked) });
    return { status: answer.status, json: await answer.json() };
  }

  test("cells of a notebook run in one interpreter, go on after an error, and leave no session", async () => {
    const cells = [
      "x = int(open('in/n.txt').read())\nprint('read')",
      "1 / 0",
      "open('out.txt', 'w').write('made')\nx * 7",
    ];
    const files = { "in/n.txt": btoa("6") };
    const asked = {
      cells,
      files,
      fetch_files: ["out.txt", "nothing"],
      total_timeout: 60,
      cell_timeout: 0,
    };
    const cell = (fields: object) => ({
      stdout: "",
      stderr: "",
      display: [],
      error: [],
      ...fields,
    });
    expect(await runJupyter(asked)).toEqual({
      status: 200,
      json: {
        status: "Success",
        message: "",
        driver: {
          status: "Finished",
          execution_time: null,
          return_code: 0,
          stdout: "",
          stderr: "",
        },
        executor_pod_name: null,
        cells: [
          cell({ stdout: "read\n" }),
          cell({
            stderr: expect.stringContaining("1 / 0") as string,
            error: [
              {
                ename: "ZeroDivisionError",
                evalue: "division by zero",
                traceback: [expect.stringContaining("Traceback") as string],
              },
            ],
          }),
          cell({ display: [{ "text/plain": "42" }] }),
        ],
        files: { "out.txt": btoa("made") },
      },
    });
    const late = { cells: ["while True: pass"], total_timeout: 1.5 };
    expect(await runJupyter(late)).toMatchObject({
      status: 200,
      json: { status: "Failed", driver: { status: "TimeLimitExceeded" }, cells: [] },
    });
    const headers = { Authorization: `Bearer ${key}` };
    const left = await fetch(`${service.url}/sessions?status=ready`, { headers });
    expect(await left.json()).toMatchObject({ count: 0 });
  });

  test("E2B: a file that cannot be read leaves no copy; a listing that is too long or too deep is 400; a read gives the file that was asked for", async () => {
    const sandbox: Record<string, string> = { "X-Api-Key": key };
    const ask = async (path: string, body?: object): Promise<{ status: number; text: string }> => {
      const post = body && { method: "POST", body: JSON.stringify(body) };
      const answer = await fetch(`${service.url}/compat/e2b${path}`, { headers: sandbox, ...post });
      return { status: answer.status, text: await answer.text() };
    };
    const { text } = await ask("/sandboxes", { templateID: "base" });
    sandbox["E2b-Sandbox-Id"] = (JSON.parse(text) as { sandboxID: string }).sandboxID;
    const code = `import os
open("/tmp/large", "w").write("x" * 100_000)
os.makedirs("many")
for n in range(100):
    open(f"many/{n}", "w").close()
for n in range(1100):
    os.mkdir("d")
    os.chdir("d")
os.chdir("/output")`;
    await ask("/execute", { code });
    // A call of code would have this file among its own.
    const form = new FormData();
    form.append("file", new Blob(["n\n1\n"]), "DATA.csv");
    const files = `${service.url}/compat/e2b/files?path=DATA.csv`;
    const wrote = await fetch(files, { method: "POST", headers: sandbox, body: form });
    expect(wrote.status).toBe(200);
    expect((await ask("/files?path=/etc/passwd")).text).toContain("root:");
    const read = async (path: string) => (await ask(`/files?path=${path}`)).status;
    expect([await read("/tmp/large"), await read("/proc/self/mem")]).toEqual([507, 403]);
    const list = (path: string, depth = 1) =>
      ask("/filesystem.Filesystem/ListDir", { path, depth });
    const { entries } = JSON.parse((await list("/tmp")).text) as { entries: { name: string }[] };
    expect(entries.map(({ name }) => name)).toEqual(["large"]);
    expect(await list("many")).toMatchObject({
      status: 400,
      text: expect.stringContaining("max_stdout_bytes") as string,
    });
    expect(await list("d", 2000)).toMatchObject({
      status: 400,
      text: expect.stringContaining("recursion") as string,
    });
    await fetch(`${service.url}/sessions/${sandbox["E2b-Sandbox-Id"]}`, {
      method: "DELETE",
      headers: sandbox,
    });
  });
});

describe("compat librechat", async () => {
  useTestService({ key, api: { AIRLOCK_COMPAT: "librechat", AIRLOCK_COMPAT_KEY: key } });

  const base = () => `${service.url}/compat/librechat`;
  interface Answer {
    session_id: string;
    stdout: string;
    stderr: string;
    files: { id: string; name: string; storage_session_id: string }[];
  }
  const post = (fields: object, path = "/exec") =>
    fetch(`${base()}${path}`, { method: "POST", body: JSON.stringify(fields) });
  async function exec(fields: object): Promise<Answer> {
    const answer = await post(fields);
    expect(answer.status).toBe(200);
    return (await answer.json()) as Answer;
  }
  const file = (answer: Answer, name: string) => answer.files.find((one) => one.name === name)!;
  async function content({ storage_session_id, id }: Answer["files"][number]): Promise<string> {
    return (await fetch(`${base()}/download/${storage_session_id}/${id}`)).text();
  }

  test("files go from an upload to code, from code to other code, and back; each keeps its place until it changes", async () => {
    const form = new FormData();
    form.append("file", new Blob(["x = 6\n"]), "lib.py");
    form.append("file", new Blob(["a"]), "deep/a.txt");
    const uploaded = await fetch(`${base()}/upload/batch`, { method: "POST", body: form });
    const given = (await uploaded.json()) as {
      storage_session_id: string;
      files: { fileId: string; filename: string }[];
    };
    const files = given.files.map(({ fileId: id, filename: name }) => {
      return { id, name, storage_session_id: given.storage_session_id };
    });
    const code = `import lib, sys
print(lib.x * 7, sys.argv[1:])
open("/mnt/data/deep/a.txt", "a").write("b")
open("/home/user/new.txt", "w").write("n")`;
    const first = await exec({ lang: "py", code, args: ["1"], files });
    expect([first.stdout, first.stderr]).toEqual(["42 ['1']\n", ""]);
    const left = (name: string) => ({
      id: expect.any(String) as string,
      name,
      storage_session_id: first.session_id,
    });
    expect(first.files).toEqual([
      left("deep/a.txt"),
      { ...files[0], inherited: true },
      left("new.txt"),
    ]);
    expect(await content(file(first, "deep/a.txt"))).toBe("ab");

    const second = await exec({
      lang: "bash",
      code: "cat lib.py deep/a.txt new.txt; rm new.txt; exit 3",
      files: first.files,
    });
    expect(second.stdout).toBe("x = 6\nabn");
    expect(second.files.map(({ name }) => name)).toEqual(["deep/a.txt", "lib.py"]);
    expect(second.files).toMatchObject(files.map(() => ({ inherited: true })));
  });

  test.each([
    ["an exception", { lang: "py", code: "1/0" }, /ZeroDivisionError: division by zero\n$/],
    ["the time limit", { lang: "bash", code: "sleep 60", timeout: 900 }, /at its time limit.\n$/],
  ])("%s is in stderr", async (_what, fields, words) => {
    expect(await exec(fields)).toMatchObject({
      stdout: "",
      stderr: expect.stringMatching(words) as string,
      files: [],
    });
  });

  test("a language that the image lacks is 400", async () => {
    const answer = await post({ lang: "go", code: "x" });
    expect(answer.status).toBe(400);
    expect(await answer.json()).toEqual({ error: expect.stringContaining("go") as string });
  });

  describe("code that calls tools of the client", () => {
    interface Told {
      status: string;
      continuation_token: string;
      tool_calls: { id: string; name: string; input: unknown }[];
      stdout: string;
      error: string;
    }
    async function run(fields: object): Promise<Told> {
      const answer = await post(fields, "/exec/programmatic");
      expect(answer.status).toBe(200);
      return (await answer.json()) as Told;
    }
    const tools = [
      {
        name: "get-weather",
        description: "The weather",
        parameters: { type: "object", properties: { city: { type: "string" } } },
      },
    ];

    test("waits for each, gets its result or its error, and ends with what it printed", async () => {
      const code = `import asyncio
print(await get_weather(city="x"))
print(await asyncio.gather(get_weather(city="a"), get_weather(city="b"), return_exceptions=True))`;
      const first = await run({ code, tools, timeout: 15_000 });
      const call = { id: expect.any(String) as string, name: "get-weather", input: { city: "x" } };
      expect(first).toMatchObject({ status: "tool_call_required", tool_calls: [call] });
      const answers = (told: Told, results: object[]) => ({
        continuation_token: told.continuation_token,
        tool_results: told.tool_calls.map(({ id }, n) => ({ call_id: id, ...results[n] })),
      });
      const second = await run(answers(first, [{ result: { sky: "é" }, is_error: false }]));
      expect(second.tool_calls.map(({ input }) => input)).toEqual([{ city: "a" }, { city: "b" }]);
      const failed = { result: null, is_error: true, error_message: "no b" };
      const last = await run(answers(second, [{ result: 1, is_error: false }, failed]));
      expect(last).toMatchObject({
        status: "completed",
        stdout: "{'sky': 'é'}\n[1, ToolError('no b')]\n",
      });
    });

    test("what the code raises is an error, and an unknown token is 400", async () => {
      const failed = await run({ code: "print(1)\n1/0", tools });
      expect(failed).toMatchObject({
        status: "error",
        error: expect.stringContaining("division by zero") as string,
        stdout: "1\n",
      });
      const wrong = { continuation_token: "no", tool_results: [] };
      expect((await post(wrong, "/exec/programmatic")).status).toBe(400);
    });
  });
});
