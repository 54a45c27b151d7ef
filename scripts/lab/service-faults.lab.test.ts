import { once } from "node:events";
import { globSync, readdirSync } from "node:fs";
import { type AddressInfo, connect } from "node:net";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { createServer } from "node:tls";
import { createClient } from "@libsql/client";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { makeCodeSignal } from "../../agent/testing/raw-engine.ts";
import { makeAuthority, startProxy } from "../../agent/testing/tls-world.ts";
import { ArtifactOutage } from "../../api/deps.ts";
import { artifactFolder } from "../../api/platform/artifacts.node.ts";
import { startS3 } from "../../api/testing/start-stores.ts";
import { startWorker } from "../../api/testing/start-worker.ts";
import { generations } from "../../clients/mcp/testing/generations.ts";
import { commandFor } from "../../clients/testing/command.ts";
import { pythonClient } from "../../clients/testing/programs.ts";
import { connect as connectClient } from "../../clients/typescript/src/index.ts";
import { forgetPeak, peakBytes, residentBytes } from "../../shared/testing/memory.ts";
import { tempFolder, waitUntil } from "../../shared/testing/test-file.ts";
import { makeNetwork, makeSmallDisk, type Network, type SmallDisk } from "../testing/machine.ts";
import { needs } from "../testing/needs.ts";
import { mannerNames, startIdleProxy, startManneredProxy } from "../testing/proxies.ts";
import {
  arrivesWhole,
  expectOneRun,
  flatBytes,
  run,
  shortLeases,
  startTestService,
  startTestServiceOn,
  store,
  storeTwo,
  type TestAgent,
  type TestService,
  type Variables,
} from "../testing/test-service.ts";

describe("proxy", () => {
  const folder = tempFolder();

  /** The API over TLS, as a proxy or load balancer in front of it would have it. */
  async function startTls(apiUrl: string, tls: { key: Buffer; cert: Buffer }) {
    const server = createServer(tls, (client) => {
      const api = connect(Number(new URL(apiUrl).port), "127.0.0.1");
      for (const end of [client, api]) {
        end.on("error", () => {}).on("close", () => void (client.destroy(), api.destroy()));
      }
      client.pipe(api).pipe(client);
    }).listen(0, "127.0.0.1");
    await once(server, "listening");
    return { port: (server.address() as AddressInfo).port, close: () => void server.close() };
  }

  async function post(
    url: string,
    body: object,
    headers?: Record<string, string>,
  ): Promise<unknown> {
    const answer = await fetch(url, {
      method: "POST",
      headers: { "Content-Type": "application/json", ...headers },
      body: JSON.stringify(body),
    });
    return answer.json();
  }

  test("behind a proxy that cuts idle tunnels, polls are sent again, no lease is lost and no job waits forever", async () => {
    await using service = await startTestService({
      api: { ...shortLeases, AIRLOCK_POLL_WAIT_S: "20" },
    });
    const authority = makeAuthority(folder, "ours");
    const tls = await startTls(service.url, authority.sign("DNS:localhost"));
    // A poll waits for four seconds here, as long as its lease lets it.
    const proxy = await startProxy(undefined, 1000);
    const agent = await service.startAgent("proxied", {
      AIRLOCK_API_URL: `https://localhost:${tls.port}`,
      AIRLOCK_API_CA_FILE: authority.file,
      HTTPS_PROXY: `http://127.0.0.1:${proxy.port}`,
    });
    const ids: string[] = [];
    for (const cuts of [1, 3, 5]) {
      await waitUntil(`${cuts} tunnels are cut`, () => proxy.cuts() >= cuts);
      const id = await service.submit(
        "import time; time.sleep(3); open('a.txt', 'w').write('a'); print(1)",
      );
      expect(await service.ended(id)).toMatchObject({
        status: "succeeded",
        artifacts: [{ name: "a.txt" }],
      });
      ids.push(id);
    }
    const books = ids.map((id) => ({ id, ends: ["succeeded"], stdout: "1\n" }));
    expect(await service.ledger(books)).toMatchObject({ retried: 0, faults: [] });
    expect(agent.process.exitCode).toBeNull();
    proxy.close();
    tls.close();
  });

  type Hand = {
    hasKey?: true;
    run: (url: string, code: string) => Promise<unknown>;
    answer: unknown;
  };

  const lineOfE2b = expect.stringContaining('{"type":"stdout","text":"done\\n"') as string;

  /** The official clients of a revision of MCP. */
  const mcp = (generation: keyof typeof generations): Hand => ({
    run: async (url, code) => {
      const client = await generations[generation].http({ url });
      const { structuredContent } = await client.call("execute_code", { code });
      await client.close();
      return structuredContent;
    },
    answer: { status: "succeeded", stdout: "done\n" },
  });

  /** What runs code through a proxy. With a key, the code runs once whatever the proxy does. */
  const hands: Record<string, Hand> = {
    "POST /execute": {
      run: (url, code) => post(`${url}/execute`, { code }),
      answer: { success: true, stdout: "done\n" },
    },
    "POST /execute with a key": {
      hasKey: true,
      run: (url, code) => post(`${url}/execute`, { code, idempotency_key: code }),
      answer: { success: true, stdout: "done\n" },
    },
    Dify: {
      run: (url, code) => post(`${url}/compat/dify/v1/sandbox/run`, { code, language: "python3" }),
      answer: { code: 0, data: { stdout: "done\n" } },
    },
    Piston: {
      run: (url, content) => {
        const program = { language: "python", version: "*", files: [{ content }] };
        return post(`${url}/compat/piston/api/v2/execute`, { ...program, run_timeout: 60_000 });
      },
      answer: { run: { code: 0, stdout: "done\n" } },
    },
    SandboxFusion: {
      run: (url, code) =>
        post(`${url}/compat/sandbox-fusion/run_code`, {
          code,
          language: "python",
          run_timeout: 60,
        }),
      answer: { status: "Success", run_result: { stdout: "done\n" } },
    },
    LibreChat: {
      run: (url, code) => post(`${url}/compat/librechat/exec`, { lang: "py", code }),
      answer: { stdout: "done\n", stderr: "" },
    },
    E2B: {
      run: async (url, code) => {
        const base = `${url}/compat/e2b`;
        const key = { "X-API-Key": "any" };
        const made = await post(`${base}/v2/sandboxes`, { templateID: "base" }, key);
        const { sandboxID, envdAccessToken } = made as Record<string, string>;
        if (sandboxID === undefined) return made;
        const headers = { "E2b-Sandbox-Id": sandboxID, "X-Access-Token": envdAccessToken! };
        const body = JSON.stringify({ code });
        return (await fetch(`${base}/execute`, { method: "POST", headers, body })).text();
      },
      answer: lineOfE2b,
    },
    "MCP of 2025": mcp("sdk 1"),
    "MCP of 2026": mcp("client 2"),
    "airlock run": {
      hasKey: true,
      run: (url, code) => commandFor(url).run(["run", "-"], { stdin: code }),
      answer: { code: 0, stdout: "done\n" },
    },
    "Python client": {
      hasKey: true,
      run: (url, code) => pythonClient().run(inPython, url, code),
      answer: ["done\n", "done\n"],
    },
    "TypeScript client": {
      hasKey: true,
      run: async (url, code) => {
        let told = "";
        const onStdout = (text: string) => void (told += text);
        return [(await connectClient(url).run(code, { onStdout })).stdout, told];
      },
      answer: ["done\n", "done\n"],
    },
    "session of the TypeScript client": {
      hasKey: true,
      run: async (url, code) => {
        await using session = await connectClient(url).sessions.create();
        return await session.run(code);
      },
      answer: { call: 1, status: "succeeded", stdout: "done\n" },
    },
  };
  const inPython = `
told = []
done = airlock.connect(sys.argv[1]).run(sys.argv[2], on_stdout=told.append)
print(json.dumps([done.stdout, "".join(told)]))
`;

  const idle = "closes a connection after 20 s without a byte";

  test.for([idle, ...mannerNames] as const)(
    "behind a proxy that %s, all get their result; with a key the code runs once",
    needs("python3"),
    async (manner) => {
      await using service = await startTestService({
        api: { AIRLOCK_COMPAT: "dify,piston,sandbox-fusion,librechat,e2b" },
        agents: { AIRLOCK_MAX_WORKERS: "24", AIRLOCK_CONTAINER_BACKEND: "zygote" },
      });
      await service.startAgent("runs");
      await using proxy = await (manner === idle
        ? startIdleProxy(service.url, 20_000)
        : startManneredProxy(service.url, manner));
      // The answers of synchronous requests begin after 10 s.
      const slowCode = `import time; time.sleep(${manner === idle ? 24 : 13}); print('done')`;
      const runs = Object.entries(hands).map(async ([name, hand]) => {
        const code = `${slowCode} # ${name}, ${manner}`;
        const answer = await hand.run(proxy.url, code).catch(String);
        const { rows } = await service.db.execute({
          sql: "SELECT sum(max(attempt, 1)) AS n FROM executions JOIN payloads ON execution_id = id WHERE code = ?",
          args: [Buffer.from(code)],
        });
        return [name, { answer, runs: rows[0]!["n"] }] as const;
      });
      const isTwice = /twice|again/.test(manner);
      const wanted = Object.entries(hands).map(([name, { hasKey, answer }]) => {
        return [name, { answer, runs: isTwice && !hasKey ? 2 : 1 }] as const;
      });
      expect(Object.fromEntries(await Promise.all(runs))).toMatchObject(Object.fromEntries(wanted));
      // One of the TypeScript client, which has a key, and those of E2B.
      const { rows } = await service.db.execute("SELECT count(*) AS n FROM sessions");
      expect(rows[0]!["n"]).toBe(isTwice ? 3 : 2);
    },
  );

  test("a proxy that keeps connections for 110 s does not meet one that the service has closed", async () => {
    await using service = await startTestService();
    await using proxy = await startManneredProxy(service.url, "keeps its connections");
    const submit = () => post(`${proxy.url}/execute/async`, { code: "1" });
    const [first] = [await submit(), await sleep(110_000)];
    expect([first, await submit()]).toMatchObject([{ status: "queued" }, { status: "queued" }]);
    expect(proxy.connections.size).toBe(1);
  });
});

describe("partition", () => {
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
        const { record, run } = await expectOneRun(service, id);
        expect(record.output).toEqual({ run });
      }
      await service.expectSucceeded(ids, ids.length);

      expect(await Promise.all(agents.map((agent) => agent.end("SIGTERM")))).toEqual([0, 0, 0]);
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
});

describe("disk", () => {
  let folder: string;
  let disk: SmallDisk;
  const signal = makeCodeSignal();

  describe("fault 10: a full disk", needs("root"), () => {
    beforeEach(() => {
      folder = tempFolder();
      disk = makeSmallDisk(join(folder, "disk"), 32);
    });
    afterEach(() => {
      disk[Symbol.dispose]();
    });

    const writes = `
open("file.bin", "wb").write(b"x" * 300_000)
`;
    const writesThenWaits = `${writes}${signal.wait}`;

    test("under the API: submissions are 503, and acknowledged jobs end", async () => {
      await using service = await startTestService({
        folder: join(disk.path, "data"),
        api: { ...shortLeases, AIRLOCK_LEASE_TTL_S: "60" },
        agents: { AIRLOCK_SPOOL_DIR: join(folder, "spool") },
      });
      const agent = await service.startAgent();
      const id = await service.submit(writesThenWaits);
      await service.untilBegun(id);
      disk.fill();
      const body = { code: "print(1)", input_data: { pad: "x".repeat(100_000) } };
      for (const path of ["/execute", "/execute/async"]) {
        const refused = await service.send("POST", path, body);
        expect(refused.status).toBe(503);
        expect(Number(refused.headers.get("Retry-After"))).toBeGreaterThan(0);
        expect(refused.json).toMatchObject({ error: { type: "service_unavailable" } });
      }
      expect((await service.send("GET", `/jobs/${id}`)).json).toMatchObject({ status: "running" });
      // The code has ended once its file is on its way, which the API refuses.
      await signal.sendTo(agent.name);
      const spool = () => globSync(`${folder}/spool/**/*`, { withFileTypes: true });
      await waitUntil("a file is on its way", () => spool().some((at) => at.isFile()));
      expect((await service.send("GET", `/jobs/${id}`)).json).toMatchObject({ status: "running" });

      disk.free();
      expect(await service.ended(id)).toMatchObject({
        status: "succeeded",
        artifacts: [{ name: "file.bin", size_bytes: 300_000 }],
      });
      expect((await service.send("GET", "/executions")).json).toMatchObject({ count: 1 });
      await service.expectSucceeded([id], 0);
    });

    test("under the artifacts alone: they are unavailable for the moment, and nothing is left of an upload", async () => {
      const store = artifactFolder(join(disk.path, "artifacts"));
      const sizeBytes = 100_000;
      const put = () => store.put("a/b", new Blob(["x".repeat(sizeBytes)]).stream(), { sizeBytes });
      disk.fill();
      await expect(put()).rejects.toThrow(ArtifactOutage);
      disk.free();
      const left = readdirSync(disk.path, { recursive: true, withFileTypes: true });
      expect(left.filter((at) => at.isFile())).toEqual([]);
      await put();
    });

    test("under the agent, while code runs: it runs again once there is room", async () => {
      await using service = await startTestService({ api: shortLeases });
      const agent = await service.startAgent("filled", { AIRLOCK_SPOOL_DIR: disk.path });
      const id = await service.submit(writesThenWaits);
      await service.untilBegun(id);
      disk.fill();
      await signal.sendTo(agent.name);
      const status = async () => (await service.send("GET", `/jobs/${id}`)).json["status"];
      await waitUntil("the attempt fails", async () => (await status()) !== "running");
      expect(await status()).toBe("queued");
      disk.free();
      await service.untilBegun(id, 2);
      await signal.sendTo(agent.name);
      expect(await service.ended(id)).toMatchObject({
        status: "succeeded",
        artifacts: [{ name: "file.bin", size_bytes: 300_000 }],
      });
      await service.expectSucceeded([id], 1);
    });

    test("under the agent: it leases nothing until there is room again", async () => {
      await using service = await startTestService({ api: shortLeases });
      await service.startAgent("cramped", { AIRLOCK_SPOOL_DIR: disk.path });
      expect(await service.ended(await service.submit("print(1)"))).toMatchObject({
        stdout: "1\n",
      });
      const lastSeen = async () => {
        const { agents } = (await service.send("GET", "/pool/stats")).json;
        return (agents as { last_seen: string }[])[0]?.last_seen;
      };
      const isWell = async () => (await service.send("GET", "/health")).json["docker_available"];
      await waitUntil("the agent says that it is full", async () => {
        // Each time again: the agent checks its disk with a file of its own, whose removal makes room.
        disk.fill();
        return (await isWell()) === false;
      });
      const id = await service.submit(writes);
      for (let turn = 0; turn < 2; turn++) {
        const before = await lastSeen();
        await waitUntil("the agent polls", async () => (await lastSeen()) !== before);
      }
      expect((await service.send("GET", `/jobs/${id}`)).json).toMatchObject({ status: "queued" });
      disk.free();
      expect(await service.ended(id)).toMatchObject({
        status: "succeeded",
        artifacts: [{ name: "file.bin", size_bytes: 300_000 }],
      });
      expect((await service.ledger([])).retried).toBe(0);
    });
  });
});

const outageMs = 90_000;

async function withoutApi(service: TestService): Promise<void> {
  await service.api().close();
  await sleep(outageMs);
  await service.startApi();
}

/** Another process has the lock of the database, so that nothing can be written. */
async function withoutDatabase({ folder }: TestService): Promise<void> {
  const client = createClient({ url: `file:${folder}/airlock.db` });
  const lock = await client.transaction("write");
  await sleep(outageMs);
  await lock.rollback();
  client.close();
}

describe.concurrent("fault 11: 90 s, with the default times of leases,", () => {
  test.each([
    ["the API", withoutApi],
    ["the database", withoutDatabase],
  ])("without %s end no running job: it has one attempt", async (_what, takeAway) => {
    await using service = await startTestService();
    await service.startAgent("patient", { AIRLOCK_MAX_WORKERS: "2" });
    // One ends in the outage and is reported after it, one outlasts it.
    const ids = await Promise.all(
      [45, 120].map((s) =>
        service.submit(`import time; time.sleep(${s}); print("done")`, {}, { timeout: 600 }),
      ),
    );
    for (const id of ids) await service.untilBegun(id);
    await takeAway(service);
    for (const id of ids) {
      expect(await service.ended(id)).toMatchObject({ status: "succeeded", stdout: "done\n" });
    }
    await service.expectSucceeded(ids, 0);
  });
});

describe("api/node.ts over S3", needs("swift"), () => {
  test("twice 100 MiB from containers to a bucket, and to clients: agent and API stay as small as they were", async () => {
    await using ends = new AsyncDisposableStack();
    const s3 = await startS3();
    ends.defer(() => s3.close());
    const service = ends.use(await startTestService({ api: s3.vars }));
    const agent = await service.startAgent();
    await run(service, "print(1)");
    const processes = [service.api().child.pid!, agent.process.pid!];
    const before = processes.map(residentBytes);
    processes.forEach(forgetPeak);
    const files = await storeTwo(service);
    expect(await s3.keys()).toHaveLength(2);
    await Promise.all(files.map(arrivesWhole));
    for (const [i, pid] of processes.entries()) {
      expect(peakBytes(pid) - before[i]!).toBeLessThan(flatBytes);
    }
  });
});

describe("api/worker.ts in workerd", () => {
  test("100 MiB from a container to R2, and to a client", async () => {
    await using service = await startTestServiceOn(startWorker);
    await service.startAgent();
    const stored = await store(service);
    expect(stored.sha256).toMatch(/^[0-9a-f]{64}$/);
    await arrivesWhole(stored);
  });
});
