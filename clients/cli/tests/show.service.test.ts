import { on } from "node:events";
import { expect, test, vi } from "vitest";
import { dockerError, release } from "../../../api/testing/contract/working.ts";
import { ScriptedAgent } from "../../../api/testing/scripted-agent.ts";
import { startNode } from "../../../api/testing/start-node.ts";
import { connect } from "../../typescript/src/index.ts";
import { commandFor } from "./testing/run-command.ts";

const token = "agent-token-0123456789";

test("show has a line for each attempt: its agent, how it ended, and why", async () => {
  const api = await startNode({ AIRLOCK_AGENT_TOKENS: token });
  try {
    const airlock = commandFor(api.url);
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
  } finally {
    await api.close();
  }
});

test("show says what a queued job waits for", async () => {
  const api = await startNode();
  try {
    const airlock = commandFor(api.url);
    const id = (await airlock.run(["run", "--detach", "-"], { stdin: "1" })).stdout.trim();
    const { stdout } = await airlock.run(["show", id]);
    expect(stdout).toMatch(/^reason +Waiting for a worker, at position 1\. No agent is connected/m);
    await airlock.run(["cancel", id]);
    expect((await airlock.run(["show", id])).stdout).not.toContain("reason");
  } finally {
    await api.close();
  }
});

test("show and logs say which tool calls wait for an answer, and no more once they have one", async () => {
  const api = await startNode({ AIRLOCK_AGENT_TOKENS: token });
  try {
    const airlock = commandFor(api.url);
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
    await agent.post(lease_id, "items", {
      items: [{ ...items[0], number: 7, name: names[1] }],
    });
    let told = "";
    for await (const [text] of on(followed.child.stderr, "data")) {
      told += String(text);
      if (told.includes('call 7 waits for an answer: send_mail({"item":1})\n')) break;
    }
    await agent.result(lease_id);
    expect((await followed.ended).code).toBe(0);
    expect(await show()).not.toContain("waits for an answer");
  } finally {
    await api.close();
  }
});

test("a job can be named by the end of its id", async () => {
  const api = await startNode();
  try {
    const airlock = commandFor(api.url);
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
  } finally {
    await api.close();
  }
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
