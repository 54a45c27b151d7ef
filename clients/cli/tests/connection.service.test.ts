import { once } from "node:events";
import { createServer } from "node:http";
import { type AddressInfo, connect } from "node:net";
import { afterAll, afterEach, describe, expect, test } from "vitest";
import { reservePort } from "../../../api/testing/reserve-port.ts";
import { ScriptedAgent } from "../../../api/testing/scripted-agent.ts";
import { type NodeProcess, startNode } from "../../../api/testing/start-node.ts";
import { version } from "../../../api/version.ts";
import { commandFor } from "../../testing/command.ts";

describe("doctor", () => {
  const token = "agent-token-0123456789";
  let api: NodeProcess | undefined;
  afterEach(async () => {
    await api?.close();
    api = undefined;
  });

  const start = async (vars: Record<string, string> = {}): Promise<NodeProcess> => {
    api = await startNode({ AIRLOCK_AGENT_TOKENS: token, ...vars });
    return api;
  };

  /** An agent that has said how it is. */
  async function agent(url: string, changes: Parameters<ScriptedAgent["poll"]>[0] = {}) {
    const one = new ScriptedAgent(url, token);
    await one.poll({ free_slots: 0, ...changes });
    return one;
  }

  const engine = { available: true, version: "26", runtimes: ["runc"] };

  test("doctor says that no service answers, and how to name another", async () => {
    const nowhere = `http://127.0.0.1:${await reservePort()}`;
    const { code, stdout, stderr } = await commandFor(nowhere).run(["doctor"]);
    expect({ code, stderr }).toEqual({ code: 1, stderr: "" });
    expect(stdout).toContain("could not be reached");
    expect(stdout).toContain("npm start");
  });

  test("doctor says that a key is missing or wrong, and where one goes", async () => {
    const { url } = await start({
      AIRLOCK_API_AUTH_ENABLED: "true",
      AIRLOCK_API_KEYS: "api-key-0123456789abcdef",
    });
    const wrong = await commandFor(url, "another-key").run(["doctor"]);
    expect(wrong).toMatchObject({ code: 1 });
    expect(wrong.stdout).toContain("the service does not know the key");
    expect(wrong.stdout).toContain("airlock login");
    const missing = await commandFor(url).run(["doctor"]);
    expect(missing.stdout).toContain("the service needs an API key");
  });

  test("doctor does not say that the service accepts a key if it checks none", async () => {
    const { url } = await start();
    const { stdout } = await commandFor(url, "any-key").run(["doctor"]);
    expect(stdout).toContain("ok  no key is needed: the one that was given is not checked\n");
  });

  test("doctor says that no agent is connected", async () => {
    const { url } = await start();
    const { code, stdout } = await commandFor(url).run(["doctor"]);
    expect(code).toBe(1);
    expect(stdout).toContain("no agent is connected");
    expect(stdout).toContain("npm run agent");
  });

  test("doctor says that an agent's engine does not answer", async () => {
    const { url } = await start();
    await agent(url, { engine: { ...engine, available: false } });
    const { code, stdout } = await commandFor(url).run(["doctor"]);
    expect(code).toBe(1);
    expect(stdout).toContain("Its container engine does not answer.");
    expect(stdout).toContain("start the container engine");
  });

  test("doctor says that an agent's engine keeps failing, and points to its disk", async () => {
    const { url } = await start();
    await agent(url, {
      engine: { ...engine, errors: [{ operation: "create", kind: "disk_full", count: 5 }] },
      breaker: { state: "open", failure_count: 5, success_count: 0, last_failure: null },
    });
    const { stdout } = await commandFor(url).run(["doctor"]);
    expect(stdout).toContain("circuit breaker is open");
    expect(stdout).toContain("create: disk_full");
    expect(stdout).toContain("df -h");
  });

  test("doctor says that an agent is older than the service", async () => {
    const { url } = await start();
    await agent(url, { engine: { ...engine, available: false } });
    const { stdout } = await commandFor(url).run(["doctor"]);
    expect(stdout).toContain(`has version 0, the service ${version}`);
    expect(stdout).toContain("update and restart");
  });

  test("doctor says that the service's disk is full", async () => {
    const { url } = await start({ AIRLOCK_MAX_DATABASE_BYTES: "1" });
    await agent(url, { engine, free_slots: 1 });
    const { code, stdout } = await commandFor(url).run(["doctor"]);
    expect(code).toBe(1);
    expect(stdout).toContain("a job is refused");
    expect(stdout).toContain("max_database_bytes");
  });

  test("doctor --json is one document of findings", async () => {
    const { url } = await start();
    const { stdout } = await commandFor(url).run(["doctor", "--json"]);
    expect(JSON.parse(stdout)).toContainEqual({
      ok: false,
      what: expect.stringContaining("no agent") as string,
      mend: expect.any(String) as string,
    });
  });
});

describe("proxy", async () => {
  const host = "airlock.invalid";
  const api = await startNode({ AIRLOCK_ALLOWED_HOSTS: host });
  const asked: string[] = [];
  const proxy = createServer().on("connect", ({ url = "" }, client) => {
    asked.push(url);
    const service = connect(Number(new URL(api.url).port), "127.0.0.1", () => {
      client.write("HTTP/1.1 200 OK\r\n\r\n");
      client.pipe(service).pipe(client);
    });
    for (const one of [client, service]) one.on("error", () => {});
  });
  await once(proxy.listen(0, "127.0.0.1"), "listening");
  const env = { HTTP_PROXY: `http://127.0.0.1:${(proxy.address() as AddressInfo).port}` };
  afterAll(async () => {
    proxy.closeAllConnections();
    proxy.close();
    await api.close();
  });

  test("the command goes through the proxy of the environment, but not to this machine or to NO_PROXY", async () => {
    const far = commandFor(`http://${host}`);
    expect(await far.run(["ps"], { env })).toEqual({
      code: 0,
      stdout: "",
      stderr: "no executions\n",
    });
    expect(asked).toEqual([`${host}:80`]);
    expect(await commandFor(api.url).run(["ps"], { env })).toMatchObject({ code: 0 });
    const direct = await far.run(["ps"], { env: { ...env, NO_PROXY: ".invalid" } });
    expect(direct).toMatchObject({ code: 125, stdout: "" });
    expect(asked).toHaveLength(1);
  });

  test("if nothing listens at the proxy, the command names the proxy", async () => {
    const port = await reservePort();
    const { code, stderr } = await commandFor(`http://${host}`).run(["ps"], {
      env: { HTTP_PROXY: `127.0.0.1:${port}` },
    });
    expect(code).toBe(125);
    expect(stderr).toContain(`through the proxy 127.0.0.1:${port}: nothing listens there\n`);
  });
});
