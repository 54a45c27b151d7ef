import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { reservePort } from "../../../api/testing/reserve-port.ts";
import { programArgs } from "../../../shared/testing/program.ts";
import { commandFor, startCommandService, startHoldingProxy } from "../../testing/command.ts";
import type { ExecutionRecord } from "../../typescript/src/index.ts";

const { service, folder, airlock, script } = await startCommandService();

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

const commandLine = (args: readonly string[]): string =>
  [process.execPath, ...programArgs("clients/cli/main.ts"), ...args].join(" ");
const environment = (url: string) => ({
  ...process.env,
  AIRLOCK_URL: url,
  NO_COLOR: "1",
  XDG_CONFIG_HOME: folder,
});

/** What a person sees in a terminal of their own, without its colours. */
async function seen(url: string, ...args: string[]): Promise<string> {
  const [command, env] = [commandLine(args), environment(url)];
  return new Promise((resolve) => {
    // Another exit code than 0 is no failure here.
    execFile("script", ["-qec", command, "/dev/null"], { env }, (_, stdout) => {
      resolve(stdout.replaceAll("\r\n", "\n"));
    });
  });
}

test("in a terminal, run shows the job's address, its output, its result, and where files were saved", async () => {
  const path = script(
    "makes.py",
    "print('hello'); open('/output/a.txt', 'w').write('A'); open('/output/result.json', 'w').write('{\"n\": 1}')",
  );
  const shown = await seen(service.url, "run", "-o", join(folder, "out"), path);
  expect(shown.split("\n").slice(1)).toEqual([
    "hello",
    'output: {"n":1}',
    `saved ${join(folder, "out", "a.txt")}`,
    "",
  ]);
  expect(shown).toMatch(/^http:.*\/console\/executions\//);
});

test("in a terminal, a command says at once that the service does not answer", async () => {
  const nowhere = `http://127.0.0.1:${await reservePort()}`;
  const shown = await seen(nowhere, "ps");
  expect(shown).toMatch(
    /^http:\S+ does not answer \(nothing listens there\); trying again …\nairlock: /,
  );
});

test.each([
  ["Ctrl-C", "\x03"],
  ["Ctrl-D", "\x04"],
])("%s at the prompt for the key ends login, which stores nothing", async (_, pressed) => {
  const command = commandLine(["login", service.url]);
  const terminal = spawn("script", ["-qec", command, "/dev/null"], {
    env: environment(service.url),
  });
  const ended = once(terminal, "exit");
  let shown = "";
  for await (const part of terminal.stdout) {
    if (!shown.includes("API key") && `${shown}${part}`.includes("API key")) {
      terminal.stdin.write(pressed);
    }
    shown += String(part);
  }
  expect(await ended).toEqual([130, null]);
  expect(shown).toContain("airlock: nothing was stored");
  expect(existsSync(join(folder, "airlock"))).toBe(false);
});

const long = script("long.py", "import time; print('begun', flush=True); time.sleep(600)");

/** The newest job. */
async function newest(): Promise<ExecutionRecord> {
  const { stdout } = await airlock.run(["--json", "ps", "-n", "1"]);
  return (JSON.parse(stdout) as ExecutionRecord[])[0]!;
}

test.each([
  ["Ctrl-C", "SIGINT", 130],
  ["SIGTERM", "SIGTERM", 143],
  ["the end of the terminal", "SIGHUP", 130],
] as const)(
  "%s cancels the job of run, keeps its output, and exits as it asks",
  async (_, signal, exit) => {
    const { child, ended } = airlock.start(["run", long]);
    await once(child.stdout, "data");
    child.kill(signal);
    const { code, stdout } = await ended;
    expect({ code, stdout }).toEqual({ code: exit, stdout: "begun\n" });
    expect(await newest()).toMatchObject({ status: "cancelled" });
  },
);

test("a second Ctrl-C leaves run at once", async () => {
  await using slow = await startHoldingProxy(service.url, /\/(events|cancel)$/);
  const { child, ended } = commandFor(slow.url).start(["run", long]);
  await slow.held;
  child.kill("SIGINT");
  await once(child.stderr, "data");
  while (child.exitCode === null) {
    child.kill("SIGINT");
    await sleep(200);
  }
  expect((await ended).code).toBe(130);
});

test("Ctrl-C while run submits cancels the job that the request has made", async () => {
  await using slow = await startHoldingProxy(service.url, /^\/execute\/async/);
  const { child, ended } = commandFor(slow.url).start(["run", "-d", long]);
  await slow.held;
  child.kill("SIGINT");
  await once(child.stderr, "data");
  slow.release();
  expect(await ended).toMatchObject({ code: 130, stdout: "" });
  const { execution_id } = await newest();
  await airlock.run(["logs", "-f", execution_id]);
  expect(await newest()).toMatchObject({ status: "cancelled" });
});

test("Ctrl-C while the service does not answer a submission says that there may be a job", async () => {
  await using slow = await startHoldingProxy(service.url, /^\/execute\/async/);
  const { child, ended } = commandFor(slow.url).start(["run", long]);
  await slow.held;
  child.kill("SIGTERM");
  const { code, stderr } = await ended;
  expect(code).toBe(143);
  expect(stderr).toContain("may have made a job (airlock ps)");
  await airlock.run(["cancel", (await newest()).execution_id]);
});

test("Ctrl-C only leaves logs -f: the job goes on", async () => {
  const id = (await airlock.run(["run", "-d", long])).stdout.trim();
  const { child, ended } = airlock.start(["logs", "-f", id]);
  await once(child.stdout, "data");
  child.kill("SIGINT");
  expect((await ended).code).toBe(130);
  expect(await newest()).toMatchObject({ status: "running" });
  const { code, stdout } = await airlock.run(["cancel", id]);
  expect({ code, stdout }).toEqual({ code: 0, stdout: `${id} is being cancelled\n` });
});

test("when nobody reads its output, run cancels the job and logs -f just ends", async () => {
  const ticks = script(
    "ticks.py",
    "import time\nwhile True: print('x' * 50_000, flush=True); time.sleep(0.1)",
  );
  const cut = async (...args: string[]) => {
    const command = [process.execPath, ...programArgs("clients/cli/main.ts"), ...args];
    const env = { ...process.env, AIRLOCK_URL: service.url, XDG_CONFIG_HOME: folder };
    const pipe = '"$@" | head -c 1; exit ${PIPESTATUS[0]}';
    const child = spawn("bash", ["-c", pipe, "bash", ...command], { env });
    const [code] = (await once(child, "exit")) as [number];
    return code;
  };
  const id = (await airlock.run(["run", "-d", ticks])).stdout.trim();
  expect(await cut("logs", "-f", id)).toBe(0);
  expect(await newest()).toMatchObject({ status: "running" });
  await airlock.run(["cancel", id]);
  expect(await cut("run", ticks)).toBe(130);
  expect(await newest()).toMatchObject({ status: "cancelled" });
});
