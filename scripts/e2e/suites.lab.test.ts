import { execFile } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { rawEngine } from "../../agent/sandbox/testing/raw-engine.ts";
import { tempFolder } from "../../shared/testing/temp-folder.ts";
import { ensureCpythonImage, imageMs } from "../setup/images/lab-images.ts";
import { startTestService, type TestService } from "../testing/test-service.ts";
import { service, useTestService } from "../testing/use-test-service.ts";

/** Test suites that other people wrote, with the list of what is expected to fail and why. */
const run = promisify(execFile);

describe("MCP's conformance suite", () => {
  const folder = tempFolder();
  useTestService({ api: {} });

  /** They call tools, resources and prompts of the suite's own server by name; this service has its own. */
  const ofItsServer: Readonly<Record<string, readonly string[]>> = {
    "2025-11-25":
      `logging-set-level completion-complete tools-call-simple-text tools-call-image tools-call-audio
      tools-call-embedded-resource tools-call-mixed-content tools-call-with-logging tools-call-error
      tools-call-with-progress tools-call-sampling tools-call-elicitation elicitation-sep1034-defaults
      elicitation-sep1330-enums resources-read-text resources-read-binary resources-templates-read
      resources-subscribe resources-unsubscribe prompts-list prompts-get-simple prompts-get-with-args
      prompts-get-embedded-resource prompts-get-with-image json-schema-2020-12`.split(/\s+/),
    "2026-07-28":
      `server-stateless completion-complete tools-call-simple-text tools-call-image tools-call-audio
      tools-call-embedded-resource tools-call-mixed-content tools-call-error tools-call-with-progress
      resources-read-text resources-read-binary resources-templates-read prompts-list prompts-get-simple
      prompts-get-with-args prompts-get-embedded-resource prompts-get-with-image caching
      input-required-result-basic-elicitation input-required-result-basic-sampling
      input-required-result-basic-list-roots input-required-result-request-state
      input-required-result-multiple-input-requests input-required-result-multi-round
      input-required-result-missing-input-response input-required-result-non-tool-request
      input-required-result-result-type input-required-result-tampered-state
      input-required-result-capability-check input-required-result-ignore-extra-params
      tasks-lifecycle tasks-capability-negotiation tasks-wire-fields tasks-request-state-removal tasks-mrtr-input
      tasks-request-headers tasks-dispatch-and-envelope tasks-required-task-error tasks-mrtr-composition
      json-schema-2020-12 http-custom-header-server-validation`.split(/\s+/),
  };

  test.each(Object.entries(ofItsServer))(
    "requirements of %s: only those that need the suite's own server fail",
    async (revision, expected) => {
      writeFileSync(join(folder, "package.json"), "{}");
      const pinned = "@modelcontextprotocol/conformance@0.2.0-alpha.12";
      await run("npm", ["install", "--silent", "--prefix", folder, pinned]);
      const list = join(folder, "expected.yml");
      writeFileSync(list, `server:\n${expected.map((name) => `  - ${name}\n`).join("")}`);
      const program = join(folder, "node_modules/.bin/conformance");
      const of = ["--requirements", revision, "--expected-failures", list];
      // It fails for a failure that is not listed, and for a listed one that passes.
      const { stdout } = await run(
        process.execPath,
        [program, "server", "--url", `${service.url}/mcp`, ...of],
        { cwd: folder, maxBuffer: 1 << 26 },
      );
      expect(stdout).toContain("Baseline check passed");
    },
  );
});

describe("CPython's own tests", () => {
  /** Runs a module of them and prints how each of its tests ended; it knows nothing of this service. */
  const driver = (
    module: string,
  ) => `import json, os, subprocess, sys, tempfile, xml.etree.ElementTree as xml
module = ${JSON.stringify(module)}
with tempfile.TemporaryDirectory() as folder:
    path = folder + "/result.xml"
    command = [sys.executable, "-m", "test", "--timeout", "250", "--junit-xml", path, "--tempdir", folder, module]
    said = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    told = {"exit": said.returncode}
    if os.path.exists(path):
        for case in xml.parse(path).iter("testcase"):
            ends = {child.tag for child in case} & {"failure", "error", "skipped"}
            told[case.get("name")] = ends.pop() if ends else "passed"
print(json.dumps(told))
`;
  type Told = Record<string, string | number>;

  /** What ends in another way than in a bare container, and why. */
  const differing: readonly (readonly [test: RegExp, reason: string])[] = [
    [/^test_(ftplib|logging)\.\w*IPv6\w*\./, "the bare container has no IPv6 loopback"],
    [/^test_largefile\b/, "a file may be as large as the memory limit (RLIMIT_FSIZE)"],
    [/^test_mmap\.LargeMmapTests\./, "a file may be as large as the memory limit (RLIMIT_FSIZE)"],
    [
      /^test_io\..*test_large_file_ops/,
      "a file may be as large as the memory limit (RLIMIT_FSIZE)",
    ],
    [/^test_resource\..*fsize/, "a file may be as large as the memory limit (RLIMIT_FSIZE)"],
    [/^test_fcntl\..*fcntl_64_bit/, "F_NOTIFY is refused"],
    [/^test_os\.CPUCountTests\./, "PYTHON_CPU_COUNT says how many processors the job has"],
  ];

  /** CPYTHON_MODULES runs those that match it; by default, all. */
  const only = new RegExp(process.env["CPYTHON_MODULES"] ?? "");
  /**
   * Modules that test other programs, or take longer than all others together; and test_socket, whose report breaks off
   * at its first error in a fork (regrtest itself fails), so that its tests cannot be compared one by one.
   */
  const leftOut =
    /test_(gdb|idle|tkinter|ttk|tools|multiprocessing_(spawn|forkserver)|zipfile64|socket)\b/;

  let image: string;
  let own: TestService;
  let modules: string[];
  beforeAll(async () => {
    image = await ensureCpythonImage(rawEngine);
    const jobType = { base_image: image, memory_limit: "2g", pids: 512, loopback: "full" };
    own = await startTestService({
      api: { AIRLOCK_JOB_TYPES: JSON.stringify({ default: jobType }) },
    });
    const backend = { AIRLOCK_CONTAINER_BACKEND: "zygote", AIRLOCK_MAX_WORKERS: "2" };
    await own.startAgent("agent", backend);
    const list = ["run", "--rm", image, "python3", "-m", "test", "--list-tests"];
    const listed = (await run("docker", list)).stdout.trim().split(/\s+/);
    modules = listed.filter((name) => !leftOut.test(name) && only.test(name));
  }, imageMs);
  afterAll(() => own?.[Symbol.asyncDispose]());

  async function inFork(module: string): Promise<Told> {
    const id = await own.submit(driver(module), {}, { timeout: 400 });
    await own.send("GET", `/jobs/${id}/result?wait=true&timeout=600`);
    return JSON.parse((await own.record(id)).stdout || "{}") as Told;
  }

  async function bare(module: string): Promise<Told> {
    const limits =
      "--rm --network none --user 1000:1000 --read-only --tmpfs /tmp:exec --env HOME=/tmp --memory 2g --pids-limit 512 --cap-drop ALL";
    const args = ["run", ...limits.split(" "), image, "python3", "-c", driver(module)];
    const { stdout } = await run("docker", args, { maxBuffer: 1 << 26 });
    return JSON.parse(stdout) as Told;
  }

  // A row that fails is tried again alone.
  const parts = Array.from({ length: 8 }, (_, n) => n + 1);

  test.each(parts)(
    `end in forks as in a bare container, but for what is listed: part %i of ${parts.length}`,
    async (part) => {
      const size = Math.ceil(modules.length / parts.length);
      const some = modules.slice((part - 1) * size, part * size);
      const [all, others] = [new Set<string>(), new Set<string>()];
      const waiting = some.values();
      const work = async (): Promise<void> => {
        for (const module of waiting) {
          const [here, there] = [await inFork(module), await bare(module)];
          for (const test of Object.keys({ ...here, ...there })) {
            // Of a module without tests, such as one of Windows, the status says how it ended.
            if (test === "exit" && Object.keys(here).length > 1) continue;
            const name = (test === "exit" ? module : test).replace(/^test\./, "");
            all.add(name);
            if (here[test] !== there[test]) {
              others.add(`${name}: ${here[test]}, bare ${there[test]}`);
            }
          }
        }
      };
      await Promise.all([work(), work()]);
      console.log(`part ${part}: ${some.length} modules, ${all.size} tests`);
      const unlisted = [...others].filter(
        (test) => !differing.some(([listed]) => listed.test(test)),
      );
      expect(unlisted.sort()).toEqual([]);
      const passing = differing.filter(
        ([listed]) =>
          [...all].some((test) => listed.test(test)) &&
          ![...others].some((test) => listed.test(test)),
      );
      expect(passing).toEqual([]);
    },
    3_600_000,
  );
});
