import { execFile } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { describe, expect, test } from "vitest";
import { examplesOf } from "../../clients/testing/examples-of.ts";
import { tempFolder } from "../../shared/testing/temp-folder.ts";
import { needs } from "../testing/needs.ts";
import { service, useTestService } from "../testing/use-test-service.ts";

/** The frameworks, as their users have them. */
const pinned = {
  langchain: "langchain-core==1.0.0",
  ai: ["ai@7.0.173", "zod@4.1.12"],
  agents: ["smolagents==1.26.0", "deepagents==0.7.32"],
};
const guide = "docs/guides/mcp.md";
const key = "lab-key-0123456789abcdef";
const run = promisify(execFile);

useTestService({ key });

describe("LangChain", needs("venv"), () => {
  test("the guide's tool runs code", async () => {
    const folder = tempFolder();
    await run("python3", ["-m", "venv", folder]);
    const python = join(folder, "bin/python");
    await run(python, ["-m", "pip", "install", "--quiet", pinned.langchain]);
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
    const folder = tempFolder();
    await run("python3", ["-m", "venv", folder]);
    const python = join(folder, "bin/python");
    await run(python, ["-m", "pip", "install", "--quiet", ...pinned.agents]);
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
  const folder = tempFolder();
  writeFileSync(join(folder, "package.json"), '{ "type": "module" }');
  await run("npm", ["install", "--silent", "--ignore-scripts", "--prefix", folder, ...pinned.ai]);
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
