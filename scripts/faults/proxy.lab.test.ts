import { once } from "node:events";
import { type AddressInfo, connect } from "node:net";
import { setTimeout } from "node:timers/promises";
import { createServer } from "node:tls";
import { expect, test } from "vitest";
import { makeAuthority, startProxy } from "../../agent/testing/tls-world.ts";
import { pythonClient } from "../../clients/testing/python-client.ts";
import { commandFor } from "../../clients/cli/tests/testing/run-command.ts";
import { generations } from "../../clients/mcp/testing/generations.ts";
import { connect as connectClient } from "../../clients/typescript/src/index.ts";
import { mannerNames, startIdleProxy, startManneredProxy } from "../testing/cutting-proxy.ts";
import { needs } from "../testing/needs.ts";
import { startTestService } from "../testing/test-service.ts";
import { shortLeases } from "./short-leases.ts";
import { waitUntil } from "../../shared/testing/wait-until.ts";
import { tempFolder } from "../../shared/testing/temp-folder.ts";

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

async function post(url: string, body: object, headers?: Record<string, string>): Promise<unknown> {
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
      post(`${url}/compat/sandbox-fusion/run_code`, { code, language: "python", run_timeout: 60 }),
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
  const [first] = [await submit(), await setTimeout(110_000)];
  expect([first, await submit()]).toMatchObject([{ status: "queued" }, { status: "queued" }]);
  expect(proxy.connections.size).toBe(1);
});
