import { createServer } from "node:http";
import { connect } from "node:net";
import { afterAll, describe, expect, test } from "vitest";
import { reservePort } from "../../../api/testing/reserve-port.ts";
import { ScriptedAgent } from "../../../api/testing/scripted-agent.ts";
import { startNode } from "../../../api/testing/start-node.ts";
import { version } from "../../../api/version.ts";
import { listen } from "../../../shared/testing/http.ts";
import { commandFor, startCommandApi } from "../../testing/command.ts";

describe("doctor", () => {
  const token = "agent-token-0123456789";
  const engine = { available: true, version: "26", runtimes: ["runc"] };

  test("doctor says that no service answers, and how to name another", async () => {
    const nowhere = `http://127.0.0.1:${await reservePort()}`;
    const { code, stdout, stderr } = await commandFor(nowhere).run(["doctor"]);
    expect({ code, stderr }).toEqual({ code: 1, stderr: "" });
    expect(stdout).toContain("could not be reached");
    expect(stdout).toContain("npm start");
  });

  test("doctor says that a key is missing or wrong, and where one goes", async () => {
    const { api, airlock } = await startCommandApi({
      AIRLOCK_API_AUTH_ENABLED: "true",
      AIRLOCK_API_KEYS: "api-key-0123456789abcdef",
    });
    const wrong = await commandFor(api.url, "another-key").run(["doctor"]);
    expect(wrong).toMatchObject({ code: 1 });
    expect(wrong.stdout).toContain("the service does not know the key");
    expect(wrong.stdout).toContain("airlock login");
    const missing = await airlock.run(["doctor"]);
    expect(missing.stdout).toContain("the service needs an API key");
  });

  test("doctor does not say that the service accepts a key if it checks none", async () => {
    const { api } = await startCommandApi();
    const { stdout } = await commandFor(api.url, "any-key").run(["doctor"]);
    expect(stdout).toContain("ok  no key is needed: the one that was given is not checked\n");
  });

  type Status = NonNullable<Parameters<ScriptedAgent["poll"]>[0]>;
  const old = [`has version 0, the service ${version}`, "update and restart"];
  const silent = { ...engine, available: false };
  const failing: Status = {
    engine: { ...engine, errors: [{ operation: "create", kind: "disk_full", count: 5 }] },
    breaker: { state: "open", failure_count: 5, success_count: 0, last_failure: null },
  };

  test.each<[what: string, agent: Status | undefined, says: string[], vars?: object]>([
    ["no agent is connected", undefined, ["no agent is connected", "npm run agent"]],
    [
      "an agent's engine does not answer",
      { engine: silent },
      ["Its container engine does not answer.", "start the container engine"],
    ],
    [
      "an agent's engine keeps failing, and points to its disk",
      failing,
      ["circuit breaker is open", "create: disk_full", "df -h"],
    ],
    ["an agent is older than the service", { engine: silent }, old],
    [
      "the service's disk is full",
      { engine, free_slots: 1 },
      ["a job is refused", "max_database_bytes"],
      { AIRLOCK_MAX_DATABASE_BYTES: "1" },
    ],
  ])("doctor says that %s", async (_, agent, says, vars = {}) => {
    const { api, airlock } = await startCommandApi({ AIRLOCK_AGENT_TOKENS: token, ...vars });
    if (agent) await new ScriptedAgent(api.url, token).poll({ free_slots: 0, ...agent });
    const { code, stdout } = await airlock.run(["doctor"]);
    expect(code).toBe(1);
    for (const words of says) expect(stdout).toContain(words);
  });

  test("doctor --json is one document of findings", async () => {
    const { airlock } = await startCommandApi();
    const { stdout } = await airlock.run(["doctor", "--json"]);
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
  const way = await listen(proxy);
  const env = { HTTP_PROXY: way.url };
  afterAll(async () => {
    await way[Symbol.asyncDispose]();
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
