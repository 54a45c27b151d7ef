import { execFile } from "node:child_process";
import { cpSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { findPython, promisedPythons, startsHere } from "../../../scripts/setup/find-python.ts";
import { type NodeProcess, startNode } from "../../../api/testing/start-node.ts";
import { needs, needsThroughout } from "../../../scripts/testing/needs.ts";
import { useTestService } from "../../../scripts/testing/test-service.ts";
import { tempFolder } from "../../../shared/testing/test-file.ts";
import { key, pythonClient } from "../../testing/programs.ts";
import {
  breakRows,
  jobRows,
  sessionRows,
  toolRows,
  webhookRows,
} from "../../testing/python-rows.ts";

describe("package", () => {
  needsThroughout("venv");

  const typeCheckers = ["pyright==1.1.414", "mypy==2.4.1", "typing_extensions"];
  const run = promisify(execFile);
  let folder: string;
  let api: NodeProcess;
  const inVenv = (name: string) => join(folder, "venv/bin", name);
  beforeAll(async () => {
    folder = tempFolder();
    api = await startNode();
    await run("python3", ["-m", "venv", join(folder, "venv")]);
    // setuptools writes into the folder that it builds.
    cpSync("clients/python", join(folder, "source"), { recursive: true });
  });
  afterAll(() => api.close());

  const program = `
import sys, airlock
client = airlock.connect(sys.argv[1])
try:
    client.wait("00000000-0000-7000-8000-000000000000")
except airlock.NotFoundError:
    print(client.request("GET", "/health")["version"])
`;

  test("the wheel works in an empty environment, and brings nothing else", async () => {
    const wheel = ["wheel", "--quiet", "--wheel-dir", join(folder, "wheels")];
    await run(inVenv("pip"), [...wheel, join(folder, "source")]);
    const [file, ...others] = readdirSync(join(folder, "wheels"));
    expect([file, others]).toEqual(["airlock_exec-0.1.0-py3-none-any.whl", []]);
    await run(inVenv("pip"), ["install", "--quiet", join(folder, "wheels", file ?? "")]);
    const { stdout } = await run(inVenv("python"), ["-I", "-c", program, api.url]);
    expect(stdout).toBe("0.1.0\n");
  });

  test("pyright finds nothing in strict mode for Python 3.9; pyright and mypy know the types of answers", async () => {
    await run(inVenv("pip"), ["install", "--quiet", ...typeCheckers]);
    const { stdout } = await run(inVenv("pyright"), ["--project", join(folder, "source")]);
    expect(stdout).toContain("0 errors, 0 warnings");
    const typed = join(folder, "typed.py");
    cpSync("clients/python/tests/typed.py", typed);
    const python = inVenv("python");
    await run(inVenv("pyright"), ["--pythonpath", python, typed]);
    await run(inVenv("mypy"), ["--strict", "--cache-dir", join(folder, "mypy"), typed]);
  });
});

for (const minor of promisedPythons) {
  describe(`Python ${minor}`, needs(`python${minor}`), () => {
    const python = pythonClient(() => startsHere(findPython(minor)!));
    test("the client runs under it", async () => {
      expect(await python.run("print(json.dumps(sys.version.split()[0]))")).toMatch(`${minor}.`);
    });
    useTestService({ key });
    breakRows(python);
    webhookRows(python);
    jobRows(python);
    sessionRows(python);
    toolRows(python);
  });
}
