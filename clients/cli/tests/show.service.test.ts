import { expect, test, vi } from "vitest";
import { dockerError, release } from "../../../api/testing/contract/working.ts";
import { ScriptedAgent } from "../../../api/testing/scripted-agent.ts";
import { startNode } from "../../../api/testing/start-node.ts";
import { commandFor } from "./testing/run-command.ts";

test("show has a line for each attempt: its agent, how it ended, and why", async () => {
  const token = "agent-token-0123456789";
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
