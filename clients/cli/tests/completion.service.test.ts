import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { afterAll, expect, test } from "vitest";
import { ScriptedAgent } from "../../../api/testing/scripted-agent.ts";
import { startNode } from "../../../api/testing/start-node.ts";
import { shellFunction } from "../../testing/command.ts";
import { completionScripts } from "../completion.ts";

const token = "agent-token-0123456789";
const api = await startNode({ AIRLOCK_AGENT_TOKENS: token });
afterAll(() => api.close());

/** What bash would offer for a line whose last word is being typed. */
async function offered(line: string, url = api.url): Promise<string[]> {
  const script = `${shellFunction(url)}
${completionScripts["bash"]}
COMP_LINE='airlock ${line}' COMP_POINT=${"airlock ".length + line.length}
_airlock
printf '%s\\n' "\${COMPREPLY[@]}"`;
  const { stdout } = await promisify(execFile)("bash", ["-c", script]);
  return stdout.trim().split("\n");
}

test("bash completes commands, subcommands and options", async () => {
  expect(await offered("ru")).toEqual(["run"]);
  expect(await offered("agents in")).toEqual(["invite"]);
  expect(await offered("agents invite --na")).toEqual(["--name"]);
  expect(await offered("run --job")).toEqual(["--job-type"]);
  expect(await offered("--url http://127.0.0.1:1 run --url")).toEqual(["--url"]);
  expect(await offered("completion ")).toEqual(["bash", "zsh", "fish"]);
  expect(await offered("ps -s f")).toEqual(["failed"]);
  expect(await offered("keys c")).toEqual(["create"]);
  expect(await offered("keys create --ten")).toEqual(["--tenant"]);
  expect(await offered("keys create --scopes a")).toEqual(["agents", "admin"]);
});

test("bash completes what the service knows, and nothing where there is none", async () => {
  const body = JSON.stringify({ code: "1" });
  const headers = { "Content-Type": "application/json" };
  const answer = await fetch(`${api.url}/execute/async`, { method: "POST", headers, body });
  const end = ((await answer.json()) as { job_id: string }).job_id.slice(-12);
  expect(await offered("show ")).toEqual([end]);
  expect(await offered(`cancel 0123 ${end.slice(0, 2)}`)).toEqual([end]);
  expect(await offered("run -t def")).toEqual(["default"]);
  expect(await offered("build ")).toEqual(["default"]);
  expect(await offered("keys limits ")).toEqual(["default"]);
  expect(await offered("--tenant def")).toEqual(["default"]);
  expect(await offered(`--url ${api.url} ps -t def`, "http://127.0.0.1:1")).toEqual(["default"]);
  expect(await offered("show ", "http://127.0.0.1:1")).toEqual([""]);
});

test("no name of an agent is a command, an option or moves the cursor when bash takes it into the line", async () => {
  for (const name of ["$(touch hit)", "gpu 1", "one\u001b[2Jtwo", "--url=http://127.0.0.1:1"]) {
    const one = new ScriptedAgent(api.url, token);
    await one.poll({ agent: { ...one.status().agent, name }, free_slots: 0 });
  }
  const names = await offered("agents drain ");
  expect([...new Set(names)].toSorted()).toEqual([
    String.raw`\$\(touch\ hit\)`,
    String.raw`gpu\ 1`,
  ]);
});

test("where a file or an argument of the code stands, the shell completes files", async () => {
  expect(await offered("run pack")).toEqual([""]);
  expect(await offered("run -d script.py --js")).toEqual([""]);
  expect(completionScripts["bash"]).toContain("complete -o default ");
});
