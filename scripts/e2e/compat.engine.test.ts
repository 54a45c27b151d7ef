import { describe, expect, test } from "vitest";
import { service, useTestService } from "../testing/use-test-service.ts";

const key = "key-0123456789abcdef";
const bothKeys = {
  AIRLOCK_COMPAT: "sandbox-fusion,piston,dify",
  AIRLOCK_COMPAT_KEY: key,
};

useTestService(
  { key, api: { ...bothKeys, AIRLOCK_MAX_QUEUE_SIZE: "2" } },
  { AIRLOCK_MAX_WORKERS: "1" },
);

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

  test.each([
    ["an exit code", "bash", "exit 3", { return_code: 3 }],
    ["a signal", "bash", "kill -SEGV $$", { return_code: -11 }],
    [
      "the time limit",
      "bash",
      "echo a; sleep 60",
      { status: "TimeLimitExceeded", return_code: null, stdout: "a\n" },
    ],
  ])("tells %s", async (_what, language, code, told) => {
    expect(await run({ code, language, run_timeout: 0.9 })).toEqual(
      answer("Failed", { run_result: finished(told) }),
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
        files: { "made.bin": "AP8=", "./in//a.txt": btoa("hi!"), "/output/in/a.txt": btoa("hi!") },
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
    ["too much memory", { code: "x", language: "python", memory_limit_MB: 513 }, "memory_limit_MB"],
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

  test("a burst beyond the queue waits its turn: no verdict is lost", async () => {
    const all = Array.from({ length: 24 }, (_, n) => n);
    const verdicts = await Promise.all(
      all.map((n) => run({ code: `print(${n})`, language: "python", run_timeout: 60 })),
    );
    expect(verdicts).toEqual(
      all.map((n) => answer("Success", { run_result: finished({ stdout: `${n}\n` }) })),
    );
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
    const asked = { language: "python3", code: "print(x)", preload: "x = 1", enable_network: true };
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
