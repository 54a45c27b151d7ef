import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { readdirSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import type { Readable } from "node:stream";
import { promisify } from "node:util";
import { build } from "esbuild";
import { Webhook } from "standardwebhooks";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { openBrowser } from "../../../api/testing/browser.ts";
import { ScriptedAgent } from "../../../api/testing/scripted-agent.ts";
import { type NodeProcess, startNode } from "../../../api/testing/start-node.ts";
import { type CuttingProxy, startCuttingProxy } from "../../../scripts/testing/proxies.ts";
import { tempFolder } from "../../../shared/testing/test-file.ts";
import { connect } from "../src/index.ts";

describe("package", async () => {
  const run = promisify(execFile);
  let folder: string;
  let api: NodeProcess;
  beforeAll(async () => {
    folder = tempFolder();
    api = await startNode();
  });
  afterAll(() => api.close());

  /** A program of a user, in a project of its own. */
  const program = `
import { connect, NotFoundError, type ExecutionRecord } from "airlock-exec";
const airlock = connect({ url: process.argv[2] });
const waiting: Promise<ExecutionRecord> = airlock.wait("00000000-0000-7000-8000-000000000000");
const error: unknown = await waiting.catch((caught: unknown) => caught);
console.log(error instanceof NotFoundError, (await airlock.api.getHealth()).version);
`;

  test("npm pack's package works and type-checks in an empty folder", async () => {
    await run("npm", ["pack", "--ignore-scripts=false", "--pack-destination", folder], {
      cwd: "clients/typescript",
    });
    rmSync("clients/typescript/dist", { recursive: true });
    const [archive] = readdirSync(folder);
    writeFileSync(join(folder, "package.json"), '{"type":"module"}');
    await run("npm", ["install", "--no-audit", "--no-fund", `./${archive}`], { cwd: folder });
    writeFileSync(join(folder, "program.ts"), program);
    const strict = ["--noEmit", "--strict", "--module", "nodenext", "--lib", "es2022,dom"];
    const types = ["--typeRoots", resolve("node_modules/@types"), "--types", "node"];
    await run(resolve("node_modules/.bin/tsc"), [...strict, ...types, "program.ts"], {
      cwd: folder,
    });
    // Node 22.18 and newer run TypeScript.
    const { stdout } = await run("node", ["program.ts", api.url], { cwd: folder });
    expect(stdout).toBe("true 0.1.0\n");
  });
});

describe("runtimes", () => {
  const require = createRequire(createRequire(import.meta.url).resolve("wrangler/package.json"));
  const { default: workerd } = require("workerd") as { default: string };

  const token = "agent-token-0123456789";
  const secret = `whsec_${Buffer.alloc(32, 7).toString("base64")}`;
  const body = '{"type":"execution.succeeded","data":{}}';
  const delivery = {
    "webhook-id": "msg_1",
    "webhook-timestamp": "1000",
    "webhook-signature": new Webhook(secret).sign("msg_1", new Date(1_000_000), body),
  };

  /** What a program does with the client, whatever runs it. */
  const exercise = `
import { connect, InvalidRequestError, verifyWebhook } from "./clients/typescript/src/index.ts";
export async function exercise(url) {
  const client = connect({ url });
  let told = "";
  const record = await client.run({ code: "1\\n" }, { onStdout: (text) => (told += text) });
  const refused = await client.submit("").catch((error) => error);
  const { file_id } = await client.files.upload("ä.txt", "text");
  const bytes = await client.files.get(file_id);
  const delivery = ${JSON.stringify(delivery)};
  const event = await verifyWebhook(${JSON.stringify(body)}, delivery, ${JSON.stringify(secret)}, { nowMs: 1_000_000 });
  return {
    status: record.status,
    stdout: [record.stdout, told],
    refused: [refused instanceof InvalidRequestError, refused.code],
    file: new TextDecoder().decode(bytes),
    event: event.type,
  };
}
export async function follow(url, jobId) {
  const ids = [];
  let text = "";
  for await (const { id, event, data } of connect({ url }).stream(jobId)) {
    if (id) ids.push(id);
    if (event === "stdout") text += data.text;
  }
  return { ids, text };
}
export async function submitAndWait(url, metadata) {
  const client = connect({ url });
  const { job_id } = await client.submit({ code: "2", metadata });
  return (await client.wait(job_id)).stdout;
}
`;
  const worker = `
export default {
  fetch: async (request) => {
    try {
      const [name, ...args] = await request.json();
      return Response.json(await { exercise, follow, submitAndWait }[name](...args));
    } catch (error) {
      return Response.json({ thrown: error.stack });
    }
  },
};`;

  let api: NodeProcess;
  let proxy: CuttingProxy;
  let folder: string;
  const stopping = new AbortController();
  beforeAll(async () => {
    folder = tempFolder();
    api = await startNode({ AIRLOCK_AGENT_TOKENS: token, AIRLOCK_API_RATE_LIMIT_ENABLED: "false" });
    proxy = await startCuttingProxy(api.url);
    void finishJobs(new ScriptedAgent(api.url, token), stopping.signal);
  });
  afterAll(async () => {
    stopping.abort();
    await proxy[Symbol.asyncDispose]();
    await api.close();
  });

  /** Ends each job with its code as the output. */
  async function finishJobs(agent: ScriptedAgent, signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const { jobs } = await agent
        .poll({ free_slots: 1, wait_s: 2 }, signal)
        .catch(() => ({ jobs: [] }));
      for (const { lease_id, code } of jobs) {
        await agent.result(lease_id, {
          status: "succeeded",
          exit_code: 0,
          stdout_base64: btoa(code),
        });
      }
    }
  }

  async function bundle(contents: string, format: "esm" | "iife"): Promise<string> {
    const { outputFiles } = await build({
      stdin: { contents, resolveDir: ".", loader: "ts" },
      bundle: true,
      write: false,
      format,
      target: "es2022",
      // This fails to resolve if the client imports a Node package.
      platform: "browser",
    });
    return outputFiles[0]!.text;
  }

  const done = {
    status: "succeeded",
    stdout: ["1\n", "1\n"],
    refused: [true, "invalid_request"],
    file: "text",
    event: "execution.succeeded",
  };

  /** Makes jobs, over answers that break off at many points of their heads and bodies. */
  async function expectOneEach(
    submitAndWait: (metadata: Record<string, string>) => Promise<unknown>,
    runtime: string,
  ): Promise<void> {
    for (const answer of [1, 9, 10, 12, 13, 20, 45, 100, 150, 200, 250, 300, 400, 500]) {
      const before = proxy.cuts();
      proxy.cutNext({ answer }, { answer });
      expect([answer, await submitAndWait({ runtime, cut: String(answer) })]).toEqual([
        answer,
        "2",
      ]);
      expect(proxy.cuts() - before).toBe(2);
      const { items } = await connect({ url: api.url }).api.listExecutions({
        metadata: [`runtime:${runtime}`, `cut:${answer}`],
      });
      expect(items).toHaveLength(1);
    }
  }

  /** Follows a job whose output has many events, over answers that break off at many points. */
  async function expectWhole(follow: (jobId: string) => Promise<unknown>): Promise<void> {
    const stdout = Array.from({ length: 40_000 }, (_, n) => `line ${n}\n`).join("");
    const airlock = connect({ url: api.url });
    const { execution_id } = await airlock.run(stdout);
    const unbroken = (await follow(execution_id)) as { ids: string[]; text: string };
    expect(unbroken.text === stdout).toBe(true);
    expect(unbroken.ids.length).toBeGreaterThan(10);
    const before = proxy.cuts();
    const cuts = [1, 100, 500, 20_000, 100_000, 150_000, 50_000, 10, 30_000];
    proxy.cutNext(...cuts.map((answer) => ({ answer })));
    expect(await follow(execution_id)).toEqual(unbroken);
    expect(proxy.cuts() - before).toBe(cuts.length);
  }

  test("the client works in workerd, also over connections that break", async () => {
    writeFileSync(join(folder, "worker.js"), await bundle(exercise + worker, "esm"));
    writeFileSync(
      join(folder, "config.capnp"),
      `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [
    (name = "main", worker = (
      modules = [(name = "worker.js", esModule = embed "worker.js")],
      compatibilityDate = "2026-01-01",
    )),
    (name = "internet", network = (allow = ["private"])),
  ],
  sockets = [(name = "http", address = "127.0.0.1:0", http = (), service = "main")],
);
`,
    );
    const child = spawn(workerd, ["serve", "--control-fd=3", join(folder, "config.capnp")], {
      stdio: ["ignore", "inherit", "inherit", "pipe"],
    });
    try {
      const lines = createInterface(child.stdio[3] as Readable);
      const [line] = (await once(lines, "line")) as [string];
      const { port } = JSON.parse(line) as { port: number };
      const call = async (...args: unknown[]): Promise<unknown> => {
        const init = { method: "POST", body: JSON.stringify(args) };
        return (await fetch(`http://127.0.0.1:${port}/`, init)).json();
      };
      expect(await call("exercise", api.url)).toEqual(done);
      await expectOneEach((metadata) => call("submitAndWait", proxy.url, metadata), "workerd");
      await expectWhole((id) => call("follow", proxy.url, id));
    } finally {
      child.kill("SIGKILL");
      await once(child, "exit");
    }
  });

  test("the client works in a browser, from a page of the service, also over connections that break", async () => {
    const script = await bundle(
      `${exercise}\nObject.assign(globalThis, { exercise, follow, submitAndWait });`,
      "iife",
    );
    const browser = await openBrowser();
    try {
      const page = await browser.newPage();
      await page.goto(`${proxy.url}/docs`);
      await page.evaluate(script);
      expect(await page.evaluate(`exercise()`)).toEqual(done);
      expect(await page.evaluate(`exercise(location.origin)`)).toEqual(done);
      await expectOneEach(
        (metadata) => page.evaluate(`submitAndWait(location.origin, ${JSON.stringify(metadata)})`),
        "browser",
      );
      await expectWhole((id) => page.evaluate(`follow(location.origin, "${id}")`));
    } finally {
      await browser.close();
    }
  });
});
