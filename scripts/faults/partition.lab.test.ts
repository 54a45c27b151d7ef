import { randomUUID } from "node:crypto";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  startTestService,
  type TestAgent,
  type TestService,
  type Variables,
} from "../testing/test-service.ts";
import { shortLeases } from "./short-leases.ts";
import { makeNetwork, type Network } from "../testing/network.ts";
import { needs } from "../testing/needs.ts";
import { waitUntil } from "../../shared/testing/wait-until.ts";
import { makeCodeSignal } from "../../agent/sandbox/testing/code-signal.ts";

const signal = makeCodeSignal();

/** Runs until the signal; its file and its output name one run of the code. */
const writes = `
import json, uuid
run = str(uuid.uuid4())
open("run.txt", "w").write(run)
json.dump({"run": run}, open("result.json", "w"))
print(run, flush=True)
${signal.wait}`;

/** A service without TLS on a network of this machine. */
const startOn = (network: Network, api: Variables): Promise<TestService> =>
  startTestService({
    api: {
      ...shortLeases,
      AIRLOCK_HOST: network.address,
      AIRLOCK_ALLOW_UNAUTHENTICATED_NETWORK_ACCESS: "true",
      ...api,
    },
    agents: { AIRLOCK_ALLOW_PLAIN_HTTP: "true" },
  });

const directions = ["both", "out", "in"] as const;

describe("a partition", needs("root", "network tools"), () => {
  let network: Network;
  let service: TestService;
  const agents: TestAgent[] = [];
  beforeAll(async () => {
    network = makeNetwork(directions.length);
    // Each agent has a job type of its own, and takes over no other's job.
    const types = directions.map((cut) => [`for-${cut}`, { labels: { cut } }] as const);
    service = await startOn(network, {
      AIRLOCK_JOB_TYPES: JSON.stringify(Object.fromEntries(types)),
    });
    for (const [i, cut] of directions.entries()) {
      const env = { AIRLOCK_AGENT_LABELS: JSON.stringify({ cut }) };
      agents.push(await service.startAgent(cut, env, network.hosts[i]!.enter));
    }
  });
  afterAll(async () => {
    await service?.[Symbol.asyncDispose]();
    network[Symbol.dispose]();
  });

  /** Until the first lease of a job is over. */
  async function untilLost(id: string): Promise<void> {
    const sql = "SELECT 1 FROM executions WHERE id = ? AND status = 'running' AND attempt = 1";
    await waitUntil(
      `${id} is lost`,
      async () => (await service.db.execute({ sql, args: [id] })).rows.length === 0,
    );
  }

  /** The job shows the files and the output of one run, and of no other. */
  async function expectOneRun(id: string): Promise<void> {
    const record = await service.ended(id);
    expect(record).toMatchObject({ status: "succeeded", artifacts: [{ name: "run.txt" }] });
    const file = await fetch(`${service.url}/jobs/${id}/artifacts/run.txt`);
    const run = await file.text();
    expect(record).toMatchObject({ stdout: `${run}\n`, output: { run } });
  }

  test("fault 5: after a partition longer than the lease, in one or both directions, the agent has given up the job by its own clock, and it runs again and ends once", async () => {
    const ids: string[] = [];
    for (const [i, which] of directions.entries()) {
      const id = await service.submit(writes, {}, { job_type: `for-${which}` });
      await service.untilBegun(id);
      network.hosts[i]!.cut(which);
      ids.push(id);
    }
    // At once, as the API hears an agent whose answers are lost, and gives it the job again.
    const healing = ids.map((id, i) => untilLost(id).then(() => network.hosts[i]!.heal()));
    await Promise.all(healing);
    const { rows } = await service.db.execute("SELECT correlation_id FROM executions");
    for (const [i, id] of ids.entries()) {
      await service.untilBegun(id, 2);
      await signal.sendTo(agents[i]!.name);
      await expectOneRun(id);
    }
    expect(await service.ledger(ids.map((id) => ({ id, ends: ["succeeded"] })))).toMatchObject({
      retried: ids.length,
      faults: [],
    });

    for (const agent of agents) agent.process.kill("SIGTERM");
    expect(await Promise.all(agents.map(({ exit }) => exit))).toEqual([0, 0, 0]);
    const said = (await Promise.all(agents.map(({ stderr }) => stderr))).join("");
    for (const row of rows) {
      const job = `[${row["correlation_id"] as string}]`;
      const lines = said.split("\n").filter((line) => line.includes(job));
      expect(lines.join()).toMatch(/attempt 1 dropped: not renewed in time/);
    }
  });
});

describe("a wire", needs("root", "network tools"), () => {
  let network: Network;
  let service: TestService;
  beforeAll(async () => {
    network = makeNetwork(1);
    service = await startOn(network, { AIRLOCK_POLL_WAIT_S: "1" });
    await service.startAgent("far", {}, network.hosts[0]!.enter);
  });
  afterAll(async () => {
    await service?.[Symbol.asyncDispose]();
    network[Symbol.dispose]();
  });

  const brings = `
open("file.bin", "wb").write(bytes(range(256)) * 128)
print(__import__("json").load(open("/input/data.json"))["mark"])
`;

  test.each([
    ["loses packets", (host: Network["hosts"][number]) => host.lose(0.15)],
    ["is slow", (host: Network["hosts"][number]) => host.slow(128)],
  ])("fault 5: that %s delivers everything once", async (_what, weaken) => {
    const [host] = network.hosts;
    weaken(host!);
    const mark = randomUUID();
    const ids = await Promise.all([1, 2, 3].map(() => service.submit(brings, { mark })));
    for (const id of ids) {
      expect(await service.ended(id)).toMatchObject({
        status: "succeeded",
        stdout: `${mark}\n`,
        artifacts: [{ name: "file.bin", size_bytes: 256 * 128 }],
      });
    }
    host!.heal();
    const acknowledged = ids.map((id) => ({ id, ends: ["succeeded"] }));
    expect((await service.ledger(acknowledged)).faults).toEqual([]);
  });

  test("fault 5: half-open connections are given up, and work continues", async () => {
    const [host] = network.hosts;
    host!.cut("both");
    // The agent's poll hangs on a connection whose other end is gone; nobody can tell it.
    await service.api().close();
    await service.startApi();
    host!.heal();
    const id = await service.submit("print('on')");
    expect(await service.ended(id)).toMatchObject({ status: "succeeded", stdout: "on\n" });
  });
});
