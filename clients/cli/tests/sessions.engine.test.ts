import { spawn } from "node:child_process";
import { once } from "node:events";
import { expect, test } from "vitest";
import { programArgs } from "../../../shared/testing/program.ts";
import { startCommandService } from "./testing/command-service.ts";

const { airlock, script, service } = await startCommandService();

test("a session is made, used, listed and ended", async () => {
  const made = await airlock.run(["session", "create", "-m", "chat=4711", "--idle-timeout", "5m"]);
  const id = made.stdout.trim();
  expect(id).toMatch(/^[0-9a-f-]{36}$/);
  const short = id.slice(-12);
  const data = script("prices.csv", "tea,3\n");
  const first = script("first.py", "rows = open('prices.csv').read().split(',')\nprint(rows[0])");
  expect(await airlock.run(["session", "run", "-f", data, short, first])).toEqual({
    code: 0,
    stdout: "tea\n",
    stderr: "",
  });
  const next = await airlock.run(["session", "run", id, "-"], { stdin: "print(1)\nrows" });
  expect(next).toMatchObject({ code: 0, stdout: "1\n['tea', '3\\n']\n" });
  const failed = await airlock.run(["session", "run", id, "-"], { stdin: "1 / 0" });
  expect(failed).toMatchObject({
    code: 1,
    stderr: expect.stringContaining("ZeroDivisionError") as unknown,
  });
  const again = await airlock.run(["session", "run", "--restart", id, "-"], { stdin: "rows" });
  expect(again.stderr).toContain("NameError");

  const listed = await airlock.run(["session", "list", "--status", "ready", "--json"]);
  expect(JSON.parse(listed.stdout)).toMatchObject([
    { session_id: id, calls: 4, metadata: { chat: "4711" }, idle_timeout: 300 },
  ]);
  expect(await airlock.run(["session", "end", short])).toMatchObject({
    code: 0,
    stdout: `${id} has ended\n`,
  });
  const table = await airlock.run(["session", "ls"]);
  expect(table.stdout).toMatch(new RegExp(`^ID +STATUS .*\n${id} +ended +4 .*deleted\n$`));
  const typed = await airlock.run(["repl", short], { stdin: "" });
  expect(typed).toMatchObject({
    code: 126,
    stderr: expect.stringContaining("has ended (deleted)") as unknown,
  });
  const late = await airlock.run(["session", "run", id, "-"], { stdin: "1" });
  expect(late).toMatchObject({
    code: 126,
    stderr: expect.stringContaining("session_ended") as unknown,
  });
});

test("repl runs each statement with the variables of those before, and ends its session", async () => {
  const typed = `x = 20
def twice(n):
    return n * 2

for n in range(2):
    print(n)

twice(x) + 2
1 / 0
(x,
 "still here")
exit()
print("left")
`;
  const { code, stdout, stderr } = await airlock.run(["repl", "-m", "test=repl"], { stdin: typed });
  expect(stdout).toBe("0\n1\n42\n(20, 'still here')\n");
  expect(stderr).toContain("ZeroDivisionError: division by zero\n");
  expect(stderr).not.toContain("airlock:");
  expect(code).toBe(0);
  const listed = await airlock.run(["session", "list", "-n", "1", "--json"]);
  expect(JSON.parse(listed.stdout)).toMatchObject([
    { status: "ended", reason: "deleted", calls: 6, metadata: { test: "repl" } },
  ]);
});

test("repl starts an interpreter anew that has ended, and says that its variables are gone", async () => {
  const stdin = "x = 1\nimport os; os._exit(3)\nprint('again')\nx\n";
  const { code, stdout, stderr } = await airlock.run(["repl"], { stdin });
  expect(stdout).toBe("again\n");
  expect(stderr).toMatch(/exit code 3[^]*it starts anew\n[^]*NameError: name 'x' is not defined/);
  expect(code).toBe(1);
});

test("exit() ends repl while its standard input stays open", async () => {
  const args = [...programArgs("clients/cli/main.ts"), "repl"];
  const repl = spawn(process.execPath, args, { env: { ...process.env, AIRLOCK_URL: service.url } });
  const ended = once(repl, "exit");
  repl.stdin.write("exit()\n");
  expect(await ended).toEqual([0, null]);
});

/** Types into repl in a terminal: each text once another one is on the screen. */
async function typed(script: readonly (readonly [shown: string, text: string])[]) {
  const args = [process.execPath, ...programArgs("clients/cli/main.ts"), "repl"].join(" ");
  const env = { ...process.env, AIRLOCK_URL: service.url, NO_COLOR: "1" };
  const terminal = spawn("script", ["-qec", args, "/dev/null"], { env });
  const ended = once(terminal, "exit");
  let shown = "";
  let step = 0;
  for await (const part of terminal.stdout) {
    shown += String(part);
    while (step < script.length && shown.includes(script[step]![0])) {
      terminal.stdin.write(script[step++]![1]);
    }
  }
  return { shown, step, ended: await ended };
}

test("in a terminal, Ctrl-C interrupts what runs and keeps variables, and Ctrl-D ends repl", async () => {
  const script = [
    [">>> ", "import time; x = 'kept'; print('on' * 3); time.sleep(600)\r"],
    ["ononon", "\u0003"],
    ["KeyboardInterrupt", "x * 2\r"],
    ["keptkept", "\u0004"],
  ] as const;
  const { shown, step, ended } = await typed(script);
  expect([step, ended]).toEqual([script.length, [0, null]]);
  // The traceback has told of Ctrl-C.
  expect(shown).not.toContain("airlock:");
});

test("Ctrl-D that is typed while code runs ends repl after it", async () => {
  const script = [
    [">>> ", "import time; print('on' * 3, flush=True); time.sleep(1); print('off' * 3)\r"],
    ["ononon", "\u0004"],
  ] as const;
  const { shown, step, ended } = await typed(script);
  expect([step, ended]).toEqual([script.length, [0, null]]);
  expect(shown).toContain("offoffoff");
});
