import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { afterAll, expect, test } from "vitest";
import { startNode } from "../../../api/testing/start-node.ts";
import { completionScripts } from "../src/completion/scripts.ts";
import { shellFunction } from "./testing/shell-function.ts";

const api = await startNode();
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
  expect(await offered(`--url ${api.url} ps -t def`, "http://127.0.0.1:1")).toEqual(["default"]);
  expect(await offered("show ", "http://127.0.0.1:1")).toEqual([""]);
});

test("the shell completes files for a file or an argument of the code", async () => {
  expect(await offered("run pack")).toEqual([""]);
  expect(await offered("run -d script.py --js")).toEqual([""]);
  expect(completionScripts["bash"]).toContain("complete -o default ");
});
