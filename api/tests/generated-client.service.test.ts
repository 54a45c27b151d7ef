import { symlinkSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { runTool } from "../../scripts/operate/command.ts";
import { tempFolder } from "../../shared/testing/test-file.ts";
import { ScriptedAgent } from "../testing/scripted-agent.ts";
import { type NodeProcess, startNode } from "../testing/start-node.ts";

const token = "agent-token-0123456789";

/** A program that uses only the generated client. Every step must type-check. */
const program = `
import * as airlock from "./client.ts";
airlock.defaults.baseUrl = process.argv[2]!;

const health = await airlock.getHealth({});
if (health.status !== 200) throw new Error(health.data.detail);
const state: "closed" | "open" | "half_open" = health.data.circuit_breaker.state;

const refused = await airlock.executeAsync({ asyncSubmitRequest: { code: "" } });
const faults = refused.status === 400 ? refused.data.errors?.map(({ path }) => path) : [];

const submitted = await airlock.executeAsync({
  asyncSubmitRequest: { code: "print(6 * 7)", input_data: { n: 1 }, idempotency_key: "k" },
  xCorrelationId: "from-a-client",
});
if (submitted.status !== 202) throw new Error("answered " + submitted.status);
const { job_id: id, queue_position } = submitted.data;

const ended = await airlock.getJobResult({ id, wait: true, timeout: 20, view: "full" });
if (ended.status === 202) throw new Error("still " + ended.data.status);
if (ended.status !== 200) throw new Error(ended.data.title);
const error: airlock.ExecutionErrorType | undefined = ended.data.error?.type;
const names = ended.data.input_artifacts?.map(({ name }) => name);

const { data: page } = await airlock.listExecutions({ status: ["failed"], limit: 5 });
const listed = "items" in page ? page.items.map(({ execution_id }) => execution_id === id) : [];
const letters = await airlock.listDeadLetters({ errorType: "value_error" });
const again = await airlock.rerunJob({ id });
const parent = again.status === 202 ? again.data.parent_execution_id === id : again.data.detail;

console.log(JSON.stringify({
  state, faults, queue_position, error, names, listed, parent,
  correlation: letters.status === 200 ? letters.data.items[0]?.correlation_id : letters.data.detail,
}));
`;

const folder = tempFolder();
let api: NodeProcess;
beforeAll(async () => {
  symlinkSync(resolve("node_modules"), join(folder, "node_modules"));
  api = await startNode({ AIRLOCK_AGENT_TOKENS: token });
  const document = await (await fetch(`${api.url}/openapi.json`)).text();
  writeFileSync(join(folder, "openapi.json"), document);
  writeFileSync(join(folder, "package.json"), '{"type":"module"}');
  writeFileSync(
    join(folder, "tsconfig.json"),
    // The generated code does not compile with exactOptionalPropertyTypes.
    JSON.stringify({
      extends: resolve("tsconfig.json"),
      compilerOptions: { exactOptionalPropertyTypes: false },
      include: ["*.ts"],
    }),
  );
  writeFileSync(join(folder, "program.ts"), program);
});
afterAll(() => api.close());

test("a TypeScript client generated from /openapi.json type-checks, and runs a job", async () => {
  const [document, client] = [join(folder, "openapi.json"), join(folder, "client.ts")];
  expect(await runTool("oazapfts", ["--argumentStyle=object", document, client])).toMatchObject({
    ok: true,
  });
  expect(await runTool("tsc", ["--project", folder])).toEqual({ ok: true, output: "" });

  const running = runTool("node", ["--import", "tsx", join(folder, "program.ts"), api.url]);
  const agent = new ScriptedAgent(api.url, token);
  const { lease_id } = await agent.takeJob();
  const error = { type: "value_error", message: "ValueError", phase: "execution" } as const;
  await agent.result(lease_id, { status: "failed", exit_code: 1, error });
  const { ok, output } = await running;
  expect({ ok, said: ok ? (JSON.parse(output) as unknown) : output }).toEqual({
    ok: true,
    said: {
      state: "closed",
      faults: ["code"],
      queue_position: 1,
      error: "value_error",
      names: ["_code.py", "_input.json"],
      listed: [true],
      parent: true,
      correlation: "from-a-client",
    },
  });
});
