import { execFile } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { describe, expect, test } from "vitest";
import { tempFolder } from "../../shared/testing/temp-folder.ts";
import { build, fromPypi } from "../testing/builds.ts";
import { needs } from "../testing/needs.ts";
import { startTestService } from "../testing/test-service.ts";
import { service, useTestService } from "../testing/use-test-service.ts";

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
const run = promisify(execFile);
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
      const folder = tempFolder();
      const python = join(folder, "bin/python");
      await run("python3", ["-m", "venv", folder]);
      await run(python, ["-m", "pip", "install", "--quiet", ...packages]);
      const { stdout } = await run(python, ["clients/compat/testing/use_e2b.py"], { env: env() });
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
    const folder = tempFolder();
    const python = join(folder, "bin/python");
    await run("python3", ["-m", "venv", folder]);
    const packages = [pinned.smolagents, ...pinned.python.at(-1)!];
    await run(python, ["-m", "pip", "install", "--quiet", ...packages]);
    const program = "clients/compat/testing/use_smolagents.py";
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
  const folder = tempFolder();
  writeFileSync(join(folder, "package.json"), "{}");
  await run("npm", ["install", "--silent", "--prefix", folder, ...packages]);
  const path = join(folder, "use.mjs");
  writeFileSync(path, program);
  const { stdout } = await run(process.execPath, [path], { env: env() });
  expect(JSON.parse(stdout)).toEqual({
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
