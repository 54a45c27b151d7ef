import { execFile } from "node:child_process";
import { on, once } from "node:events";
import { createInterface } from "node:readline";
import { promisify } from "node:util";
import { afterAll, afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import {
  buildFailure,
  buildSuccess,
  digest,
  dockerError,
  logChunk,
  release,
} from "../../../api/testing/contract/api.ts";
import {
  answer,
  type Receiver,
  receiverSecret,
  startReceiver,
} from "../../../api/testing/receiver.ts";
import { reservePort } from "../../../api/testing/reserve-port.ts";
import { ScriptedAgent } from "../../../api/testing/scripted-agent.ts";
import { type NodeProcess, startNode, startNodeIn } from "../../../api/testing/start-node.ts";
import { tempFolder } from "../../../shared/testing/test-file.ts";
import { commandFor, shellFunction, startCommandApi } from "../../testing/command.ts";
import { connect } from "../../typescript/src/index.ts";
import { completionScripts } from "../completion.ts";

const token = "agent-token-0123456789";

test("show has a line for each attempt: its agent, how it ended, and why", async () => {
  const { api, airlock } = await startCommandApi({ AIRLOCK_AGENT_TOKENS: token });
  const run = ["run", "--detach", "-"];
  const shown = async (id: string) =>
    (await airlock.run(["show", id])).stdout
      .split("\n")
      .filter((line) => line.startsWith("attempt"))
      .map((line) => line.replaceAll(/[0-9.]+ (ms|s|min)/g, "T").replace(/ +/, " "));
  const agent = new ScriptedAgent(api.url, token);
  await agent.poll({ free_slots: 0 });
  const id = (await airlock.run(run, { stdin: "1" })).stdout.trim();
  expect(await shown(id)).toEqual([]);

  await release(agent, (await agent.takeJob()).lease_id);
  const { lease_id } = await agent.takeJob();
  await agent.post(lease_id, "started", { job_ref: null });
  const why = `${dockerError.type}: ${dockerError.message}`;
  const first = `attempt 1 on scripted: released after T: ${why}`;
  const second = (end: string) => `attempt 2 on scripted: ${end} T (its code began after T)`;
  expect(await shown(id)).toEqual([first, second("running for")]);

  await agent.result(lease_id);
  expect(await shown(id)).toEqual([first, second("succeeded after")]);
});

test("show says what a queued job waits for", async () => {
  const { airlock } = await startCommandApi();
  const id = (await airlock.run(["run", "--detach", "-"], { stdin: "1" })).stdout.trim();
  const { stdout } = await airlock.run(["show", id]);
  expect(stdout).toMatch(/^reason +Waiting for a worker, at position 1\. No agent is connected/m);
  await airlock.run(["cancel", id]);
  expect((await airlock.run(["show", id])).stdout).not.toContain("reason");
});

test("types shows the preset of a job type, and its packages of each kind", async () => {
  const report = { preset: "documents", apt: ["graphviz"], requirements: ["a==1"], npm: ["b@2"] };
  const { airlock } = await startCommandApi({ AIRLOCK_JOB_TYPES: JSON.stringify({ report }) });
  const { stdout } = await airlock.run(["types"]);
  expect(stdout).toMatch(/^NAME +PYTHON +IMAGE +MEMORY +PRESET +PACKAGES$/m);
  expect(stdout).toMatch(/^report .* documents +graphviz .* a==1 .* b@2$/m);
});

test("types set makes a job type of the tenant, and types remove removes it", async () => {
  const { airlock } = await startCommandApi({ AIRLOCK_TENANT_JOB_TYPES: "1" });
  const set = await airlock.run(["types", "set", "default.own", '{"npm": ["b@2"], "timeout": 7}']);
  expect(set.stdout).toBe("default.own is set\n");
  expect((await airlock.run(["types"])).stdout).toMatch(/^default\.own .* b@2$/m);
  const wide = await airlock.run(["types", "set", "default.own", '{"timeout": 31}']);
  expect(wide.stderr).toContain("timeout: must be at most 30, the limit of job type default");
  expect((await airlock.run(["types", "set", "default.own", "[]"])).stderr).toContain(
    "the definition must be a JSON object",
  );
  const removed = await airlock.run(["types", "rm", "default.own", "default"]);
  expect(removed.stdout).toBe("default.own is removed\n");
  expect(removed.stderr).toContain(
    "Job type default is in the service's configuration: only its operator can change it.",
  );
  expect((await airlock.run(["types"])).stdout).not.toContain("default.own");
});

test("run says which image the job waits for, each step once; build --all builds what lacks an image, past one that fails; build --log shows the log of the last one", async () => {
  const { api, airlock } = await startCommandApi({
    AIRLOCK_AGENT_TOKENS: token,
    AIRLOCK_JOB_TYPES: JSON.stringify({
      science: { requirements: ["numpy"], npm: ["marked"] },
      broken: { requirements: ["numpy"] },
    }),
  });
  const agent = new ScriptedAgent(api.url, token);
  const images = ["python:3.13-slim", digest(1)];
  const { child, ended } = airlock.start(["run", "-t", "science", "-"], { stdin: "1" });
  let told = "";
  child.stderr.on("data", (text: Buffer) => (told += text.toString()));
  const { lease_id } = await agent.takeBuild({ images });
  const waits = "Waits for the image of science.\n";
  await expect.poll(() => told, { timeout: 60_000 }).toBe(waits);
  await agent.postBuild(lease_id, "logs", { ...logChunk(0, "pip"), step: 1 });
  const running = `${waits}Waits for the image of science: step 1 of 2, pip.\n`;
  await expect.poll(() => told, { timeout: 60_000 }).toBe(running);
  await agent.postBuild(lease_id, "result", buildSuccess);
  const { jobs } = await agent.poll({ images });
  await agent.result(jobs[0]!.lease_id);
  expect(await ended).toEqual({ code: 0, stdout: "", stderr: running });

  const all = airlock.run(["build", "--all", "--json"]);
  const broken = await agent.takeBuild({ images });
  expect(broken.job_type).toBe("broken");
  await agent.postBuild(
    broken.lease_id,
    "result",
    buildFailure({ ...dockerError, type: "dependency_error" }),
  );
  const { code, stdout, stderr } = await all;
  expect({ code, stdout }).toEqual({ code: 126, stdout: "[]\n" });
  expect(stderr).toMatch(/^building broken\nairlock: Job type broken was not built: gone/);
  expect(await airlock.run(["build", "science", "--log"])).toEqual({
    code: 0,
    stdout: "pip",
    stderr: expect.stringMatching(/^built: science@sha256:\w+\n$/) as string,
  });
  const failed = await airlock.run(["build", "broken", "--log"]);
  expect(failed).toEqual({ code: 0, stdout: "", stderr: "failed: gone\n" });
  expect((await airlock.run(["build", "broken", "--log", "--json"])).stdout).toContain('"failed"');
  for (const args of [["build"], ["build", "--all", "science"], ["build", "--all", "--log"]])
    expect(await airlock.run(args)).toMatchObject({ code: 2, stdout: "" });
});

test("show and logs say which tool calls wait for an answer, and no more once they have one", async () => {
  const { api, airlock } = await startCommandApi({ AIRLOCK_AGENT_TOKENS: token });
  const client = connect(api.url);
  const names = ["get_price", "send_mail"];
  const { job_id } = await client.submit({ code: "x", tools: names.map((name) => ({ name })) });
  const agent = new ScriptedAgent(api.url, token);
  const { lease_id } = await agent.takeJob();
  await agent.post(lease_id, "started", { job_ref: null });
  // More than come in one answer, and one that would write to the terminal.
  const items = [1, 2, 3, 4, 5, 6].map((number) => ({
    number,
    name: names[0],
    arguments: { item: number === 6 ? `\u001b[2J${"x".repeat(500)}` : number },
    stdout_at: 0,
    stderr_at: 0,
  }));
  await agent.post(lease_id, "items", { items });
  const waiting = (number: number) => `call ${number} waits for an answer: get_price(`;
  const show = async () => (await airlock.run(["show", job_id])).stdout;
  const logs = async () => (await airlock.run(["logs", job_id])).stderr;
  const [shown, logged] = [await show(), await logs()];
  for (const number of [1, 2, 3, 4, 5]) {
    expect(shown).toContain(`tools      ${waiting(number)}{"item":${number}})\n`);
    expect(logged).toContain(`airlock: ${waiting(number)}{"item":${number}})\n`);
  }
  expect(shown).toMatch(/call 6 waits for an answer: get_price\(.{160}\)\n/);
  const followed = airlock.start(["logs", "-f", job_id]);
  await Promise.all(
    items.map(({ number: $number }) =>
      client.api.answerToolCall({ id: job_id, $number, toolAnswer: { result: 1 } }),
    ),
  );
  expect(await show()).not.toContain("waits for an answer");
  await agent.post(lease_id, "items", { items: [{ ...items[0], number: 7, name: names[1] }] });
  let told = "";
  for await (const [text] of on(followed.child.stderr, "data")) {
    told += String(text);
    if (told.includes('call 7 waits for an answer: send_mail({"item":1})\n')) break;
  }
  await agent.result(lease_id);
  expect((await followed.ended).code).toBe(0);
  expect(await show()).not.toContain("waits for an answer");
});

test("a job can be named by the end of its id", async () => {
  const { airlock } = await startCommandApi();
  const ids: string[] = [];
  for (let jobs = 0; jobs < 2; jobs++) {
    ids.push((await airlock.run(["run", "--detach", "-"], { stdin: "1" })).stdout.trim());
  }
  const end = ids[0]!.slice(-12);
  expect((await airlock.run(["show", end])).stdout).toContain(`job        ${ids[0]}\n`);
  expect(await airlock.run(["cancel", end, ids[1]!])).toMatchObject({
    code: 0,
    stdout: `${ids[0]} cancelled\n${ids[1]} cancelled\n`,
  });
  expect(await airlock.run(["show", "0123456789ab"])).toMatchObject({
    code: 2,
    stderr:
      "airlock: none of the newest 100 jobs has an id that ends with 0123456789ab; airlock ps shows ids\n",
  });
});

test("run names the job that it can no longer follow, because the service is gone", async () => {
  const api = await startNode();
  const airlock = commandFor(api.url);
  const { ended } = airlock.start(["run", "-"], { stdin: "1" });
  const queued = async () =>
    (await fetch(`${api.url}/executions`)).json() as Promise<{ items: { execution_id: string }[] }>;
  const { items } = await vi.waitFor(async () => {
    const page = await queued();
    expect(page.items).toHaveLength(1);
    return page;
  }, 30_000);
  await api.close();
  const { code, stderr } = await ended;
  const id = items[0]!.execution_id;
  expect(code).toBe(125);
  expect(stderr).toContain(
    `airlock: job ${id} may still run: airlock logs -f ${id} follows it, airlock cancel ${id} ends it\n`,
  );
  expect(stderr).toContain("could not be reached");
});

test.each([[["cancel", ""]], [["files", "rm", ""]], [["build", ""]]])(
  "an empty id, such as an empty variable of a script, is refused: %j",
  async (args) => {
    const { code, stderr } = await commandFor("http://127.0.0.1:1").run(args);
    expect(code).toBe(2);
    expect(stderr).toMatch(/^airlock: <[a-z-]+> is empty\n$/);
  },
);

describe("listen", () => {
  let api: NodeProcess;
  let receiver: Receiver;
  beforeEach(async () => {
    [api, receiver] = await Promise.all([startNode(), startReceiver()]);
  });
  afterEach(async () => {
    await Promise.all([api.close(), receiver.close()]);
  });

  /** The command while it listens. `next` resolves with the next line of its answer. */
  async function listen(to: string, args: string[] = ["--secret", receiverSecret]) {
    const { child } = commandFor(api.url).start(["listen", "--json", "--forward-to", to, ...args]);
    const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
    const next = async () => {
      const { value, done = false } = await lines.next();
      if (done) throw new Error("the command has ended");
      return JSON.parse(value!) as Record<string, unknown>;
    };
    const ready = await next();
    return {
      ready,
      next,
      async interrupt(): Promise<number | null> {
        child.kill("SIGINT");
        await once(child, "exit");
        return child.exitCode;
      },
    };
  }

  /** A job that ends: it is cancelled in the queue. */
  async function end(url = api.url): Promise<string> {
    const headers = { "Content-Type": "application/json" };
    const init = { method: "POST", headers, body: JSON.stringify({ code: "1" }) };
    const { job_id } = (await (await fetch(`${url}/execute/async`, init)).json()) as {
      job_id: string;
    };
    await fetch(`${url}/jobs/${job_id}/cancel`, { method: "POST" });
    return job_id;
  }

  test("listen calls a receiver with each job that ends, signed so that the reference library accepts it, until Ctrl-C", async () => {
    const listening = await listen(`${receiver.url}/hook`);
    const ids = [await end(), await end()];
    // The receiver fails if a signature is not right.
    const calls = await receiver.calls(2);
    expect(new Set(calls.map(({ id }) => id))).toEqual(new Set(ids.map((id) => `evt_${id}`)));
    expect(calls.map(({ path }) => path)).toEqual(["/hook", "/hook"]);
    const told = [await listening.next(), await listening.next()];
    expect(new Set(told.map(({ job_id }) => job_id))).toEqual(new Set(ids));
    expect(told[0]).toMatchObject({ status: 204, type: "execution.cancelled", error: null });
    expect(await listening.interrupt()).toBe(130);
  });

  test("without --secret, listen makes a secret and prints it before the first call", async () => {
    receiver.answering = answer(204);
    const listening = await listen(receiver.url, []);
    expect(listening.ready["secret"]).toMatch(/^whsec_[A-Za-z0-9+/]{43}=$/);
    await listening.interrupt();
  });

  test("listen calls again after a failure, and gives up after the third", async () => {
    receiver.answering = answer(500);
    const listening = await listen(receiver.url);
    const id = await end();
    const told = [await listening.next(), await listening.next(), await listening.next()];
    expect(told.map(({ again_in_ms }) => again_in_ms)).toEqual([1000, 5000, null]);
    expect(told[2]).toMatchObject({ status: 500, job_id: id });
    await receiver.close();
    await end();
    expect(await listening.next()).toMatchObject({ status: null, error: "nothing listens there" });
    await listening.interrupt();
    receiver = await startReceiver();
  });

  test("listen continues after a restart of the service, and misses nothing", async () => {
    const folder = tempFolder();
    const vars = { AIRLOCK_PORT: String(await reservePort()) };
    await api.close();
    api = await startNodeIn(folder, vars);
    const listening = await listen(receiver.url);
    const first = await end();
    expect(await listening.next()).toMatchObject({ job_id: first });
    await api.close();
    api = await startNodeIn(folder, vars);
    const second = await end();
    expect(await listening.next()).toMatchObject({ job_id: second });
    await listening.interrupt();
  });

  test("listen -e leaves out jobs that end with another status", async () => {
    const listening = await listen(receiver.url, ["--secret", receiverSecret, "-e", "failed"]);
    await end();
    const other = await listen(receiver.url);
    const id = await end();
    expect(await other.next()).toMatchObject({ job_id: id });
    expect(receiver.received.map((call) => call.id)).toEqual([`evt_${id}`]);
    await Promise.all([listening.interrupt(), other.interrupt()]);
  });

  test.each([
    [["--forward-to", "ftp://a"], "must be the address of a receiver"],
    [["--forward-to", "localhost:1", "--secret", "whsec_AAAA"], "--secret must be whsec_"],
    [["--forward-to", "localhost:1", "-e", "gone"], "must be one of succeeded"],
    [[], "required option '--forward-to <url>'"],
  ])("listen %s is a usage error", async (args, says) => {
    const { code, stderr } = await commandFor(api.url).run(["listen", ...args]);
    expect(code).toBe(2);
    expect(stderr).toContain(says);
  });
});

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
