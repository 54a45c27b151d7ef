import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { startNode } from "../../api/testing/start-node.ts";
import { startWorkerd } from "../../api/testing/start-worker.ts";
import { needs } from "../../scripts/testing/needs.ts";
import { startTestService, type TestService } from "../../scripts/testing/test-service.ts";
import { programOf } from "../../shared/testing/program.ts";
import { tempFolder } from "../../shared/testing/test-file.ts";
import { folderWith, pythonWith, run } from "../testing/programs.ts";
import { toolNames } from "./testing/generations.ts";

describe("official clients", () => {
  const pinned = { python: "mcp==2.3.0", inspector: "@modelcontextprotocol/inspector@2.12.0" };
  const key = "lab-key-0123456789abcdef";

  const { entry, flags } = programOf("clients/cli/main.ts");
  /** `airlock mcp`. */
  const command = [process.execPath, ...flags, entry, "mcp"];

  let service: TestService;
  let variables: NodeJS.ProcessEnv;
  beforeAll(async () => {
    service = await startTestService({ key });
    await service.startAgent();
    // Nothing that `airlock login` or the inspector has stored on this machine.
    const home = tempFolder();
    const own = { HOME: home, XDG_CONFIG_HOME: home };
    variables = { ...process.env, ...own, AIRLOCK_URL: service.url, AIRLOCK_KEY: key };
  });
  afterAll(() => service?.[Symbol.asyncDispose]());

  describe("the official Python client", needs("venv"), () => {
    let python: string;
    beforeAll(async () => {
      python = await pythonWith(pinned.python);
    });
    const argsOf = (task: string, mode: string, where: string) => [
      "clients/mcp/testing/official_client.py",
      task,
      mode,
      where,
      ...(where === "stdio" ? command : []),
    ];

    describe.each(["http", "stdio"])("over %s", (where) => {
      test.each([
        ["auto", "2026-07-28"],
        ["legacy", "2025-11-25"],
      ])(
        "%s: runs code with files, stdin and args, sees progress, reads files",
        async (mode, version) => {
          const { stdout } = await run(python, argsOf("run", mode, where), { env: variables });
          const found = JSON.parse(stdout) as { progress: string[] };
          expect(found).toMatchObject({
            version,
            tools: toolNames,
            job: { status: "succeeded", stdout: "one two three\n" },
            picture: ["image"],
            blob: Math.ceil((4 * 1024 * 1024) / 3) * 4,
          });
          expect(found.progress.at(-1)).toContain("running\none two three\n");
        },
      );

      test.each(["auto", "legacy"])("%s: a cancelled call ends its job", async (mode) => {
        const child = spawn(python, argsOf("cancel", mode, where), {
          env: variables,
          stdio: ["pipe", "pipe", "inherit"],
        });
        const exited = once(child, "exit");
        const [line] = (await once(createInterface(child.stdout), "line")) as [string];
        expect(line).toBe('"cancelled"');
        const { json } = await service.send<{ items: { execution_id: string }[] }>(
          "GET",
          "/executions?limit=1",
        );
        await service.untilStatus(json.items[0]?.execution_id ?? "", "cancelled");
        child.stdin.end("\n");
        expect(await exited).toEqual([0, null]);
      });
    });
  });

  describe("the inspector's command line", () => {
    let program: string;
    beforeAll(async () => {
      const installed = await folderWith(["--ignore-scripts", pinned.inspector]);
      program = join(installed, "node_modules/.bin/mcp-inspector");
    });
    const inspect = async (where: string, ...args: string[]) => {
      const target =
        where === "http"
          ? [`${service.url}/mcp`, "--header", `Authorization: Bearer ${key}`]
          : [...command, "-e", `AIRLOCK_URL=${service.url}`, "-e", `AIRLOCK_KEY=${key}`];
      const all = [program, "--cli", ...target, ...args];
      const { stdout } = await run(process.execPath, all, { env: variables });
      return JSON.parse(stdout) as object;
    };

    test.each(["http", "stdio"])("lists the tools and calls one over %s", async (where) => {
      // --strict: schemas that some models do not take are a failure.
      const listed = await inspect(where, "--method", "tools/list", "--strict");
      expect(listed).toMatchObject({ tools: toolNames.map((name) => ({ name })) });
      const call = ["--method", "tools/call", "--tool-name", "execute_code", "--tool-arg"];
      expect(await inspect(where, ...call, "code=print(6*7)")).toMatchObject({
        structuredContent: { status: "succeeded", stdout: "42\n" },
      });
    });
  });
});

describe("conformance", () => {
  /** These pre-releases are the first that know the revision 2026-07-28. */
  const pinned = "@modelcontextprotocol/conformance@0.2.0-alpha.12";

  /** Scenarios with checks that need special tools or prompts, which this service has not; the others hold. */
  const scenarios: Record<string, string[]> = {
    "server-stateless": [
      "sep-2575-server-rejects-undeclared-capability",
      "sep-2575-missing-capability-http-400",
      "sep-2575-http-server-no-independent-requests-on-stream",
      "sep-2575-server-no-log-without-loglevel",
    ],
    caching: ["sep-2549-prompts-list-caching-hints"],
  };

  /** What needs tools, resources and prompts of the suite's own server, by the revision of the protocol. */
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

  let folder: string;
  beforeAll(async () => {
    folder = await folderWith(["--ignore-scripts", pinned]);
  });

  const conform = (url: string, ...args: string[]) => {
    const program = join(folder, "node_modules/.bin/conformance");
    return run(process.execPath, [program, "server", "--url", `${url}/mcp`, ...args], {
      cwd: folder,
      maxBuffer: 1 << 26,
    });
  };

  async function checksOf(scenario: string, url: string) {
    const results = mkdtempSync(join(folder, "results-"));
    // It ends with 1 if a check failed.
    await conform(url, "--scenario", scenario, "--output-dir", results).catch(() => {});
    const [name = ""] = readdirSync(results);
    const text = readFileSync(join(results, name, "checks.json"), "utf8");
    return JSON.parse(text) as { id: string; status: string }[];
  }

  // Without keys, a deployment serves requests for any host name unless `allowed_hosts` names its own.
  const settings = {
    AIRLOCK_API_RATE_LIMIT_ENABLED: "false",
    AIRLOCK_ALLOWED_HOSTS: "own.example",
  };

  describe.each([
    ["Node", () => startNode(settings)],
    ["workerd", () => startWorkerd(settings, true)],
  ] as const)("the official conformance scenarios on %s", (_name, start) => {
    let service: Awaited<ReturnType<typeof start>>;
    beforeAll(async () => {
      service = await start();
    });
    afterAll(() => service?.close());

    test.each(Object.entries(ofItsServer))(
      "requirements of %s: only those that need the suite's own server fail",
      async (revision, expected) => {
        const list = join(folder, `${revision}.yml`);
        writeFileSync(list, `server:\n${expected.map((name) => `  - ${name}\n`).join("")}`);
        // It fails for a failure that is not listed, and for a listed one that passes.
        const of = ["--requirements", revision, "--expected-failures", list];
        expect((await conform(service.url, ...of)).stdout).toContain("Baseline check passed");
      },
    );

    test.each(Object.entries(scenarios))("%s", async (scenario, impossible) => {
      const checks = await checksOf(scenario, service.url);
      const failed = checks.filter(({ status }) => status === "FAILURE").map(({ id }) => id);
      expect(failed).toEqual(impossible);
      expect(checks.map(({ status }) => status)).toContain("SUCCESS");
    });
  });
});
