import { execFile } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { tempFolder } from "../../shared/testing/temp-folder.ts";
import { startTestService } from "../testing/test-service.ts";

const pinned = "@librechat/agents@3.2.21";
/** Later versions need another version of @opentelemetry/api than the package's other dependencies. */
const overrides = { "@opentelemetry/exporter-trace-otlp-http": "0.218.0" };
const run = promisify(execFile);
const key = "lab-key-0123456789abcdef";

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
  const folder = tempFolder();
  writeFileSync(join(folder, "package.json"), JSON.stringify({ overrides }));
  await run("npm", ["install", "--silent", "--prefix", folder, pinned]);
  const path = join(folder, "use.mjs");
  writeFileSync(path, program);
  const env = { LIBRECHAT_CODE_BASEURL: `${service.url}/compat/librechat`, KEY: key };
  const { stdout } = await run(process.execPath, [path], { env: { ...process.env, ...env } });
  const summary = expect.stringContaining("Session files: 1 persisted file(s)") as string;
  const id = expect.stringMatching(/^[\w-]{21}$/) as string;
  const file = { id, name: "a.png", storage_session_id: id };
  expect(JSON.parse(stdout)).toEqual({
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
  const { wrote, read } = JSON.parse(stdout) as Record<string, { content: string }>;
  expect(wrote!.content).toMatch(/^stdout:\n\['x'\]\n/);
  expect(read!.content).toMatch(/^stdout:\n1\nstderr:\noops\n/);
});
