import { join } from "node:path";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { ScriptedAgent } from "../../api/testing/scripted-agent.ts";
import { type NodeProcess, startNode } from "../../api/testing/start-node.ts";
import { startSqld } from "../../api/testing/start-stores.ts";
import { programOf } from "../../shared/testing/program.ts";
import { tempFolder } from "../../shared/testing/test-file.ts";
import { agentToken, generations, key, settings } from "./testing/generations.ts";
import { describeCancelling, describeClient, describeMcp } from "./testing/rows.ts";

describe("MCP on Node", () => {
  describeMcp(() => startNode(settings));
});

test("a client of 2025 cancels a call at another process than the one that runs it", async () => {
  const folder = tempFolder();
  const database = await startSqld(join(folder, "db"));
  const start = () => startNode({ ...settings, AIRLOCK_DATABASE_URL: database.url });
  const [first, second] = await Promise.all([start(), start()]);
  const agent = new ScriptedAgent(first.url, agentToken);
  const elsewhere: string[] = [];
  const client = await generations["sdk 1"].http({
    url: first.url,
    key,
    fetch: (url, init) => {
      const body = typeof init?.body === "string" ? init.body : "";
      if (!body.includes("notifications/cancelled")) return fetch(url, init);
      elsewhere.push(body);
      return fetch(`${second.url}/mcp`, init);
    },
  });
  try {
    const abort = new AbortController();
    const kept = client.call("execute_code", { code: "'kept'" });
    const other = await agent.takeJob();
    const called = client.call("execute_code", { code: "'cancelled'" }, { signal: abort.signal });
    called.catch(() => {});
    const { lease_id } = await agent.takeJob();
    abort.abort("not wanted");
    for (;;) {
      const { cancel } = await agent.poll({ free_slots: 0, wait_s: 2 });
      expect(cancel).not.toContain(other.lease_id);
      if (cancel.includes(lease_id)) break;
    }
    expect(elsewhere).toHaveLength(1);
    await agent.result(other.lease_id);
    expect((await kept).structuredContent).toMatchObject({ status: "succeeded" });
  } finally {
    await client.close();
    await agent.close();
    await Promise.all([first.close(), second.close()]);
    await database.close();
  }
});

const { entry, flags } = programOf("clients/cli/main.ts");
const command = (vars: Record<string, string>) => ({
  command: process.execPath,
  args: [...flags, entry, "mcp"],
  // Nothing that `airlock login` has stored on this machine.
  env: { XDG_CONFIG_HOME: "/nonexistent", ...vars },
});

describe("MCP over stdio", () => {
  let api: NodeProcess;
  let agent: ScriptedAgent;
  beforeAll(async () => {
    api = await startNode(settings);
  });
  beforeEach(() => {
    agent = new ScriptedAgent(api.url, agentToken);
    return () => agent.close();
  });
  afterAll(() => api?.close());

  describe.each(Object.entries(generations))("%s", (_name, { stdio }) => {
    const connect = () => stdio(command({ AIRLOCK_URL: api.url, AIRLOCK_KEY: key }));
    describeClient(connect, () => ({ agent, url: api.url }));
    describeCancelling(connect, () => ({ agent, url: api.url }));

    test("if the service does not answer or asks for a key, the result says so", async () => {
      const none = await stdio(command({ AIRLOCK_URL: "http://127.0.0.1:1" }));
      expect(await none.listTools()).toHaveLength(8);
      expect(await none.call("execute_code", { code: "1" })).toMatchObject({
        isError: true,
        content: [{ text: expect.stringContaining("AIRLOCK_URL") as unknown }],
      });
      await none.close();
      const keyless = await stdio(command({ AIRLOCK_URL: api.url }));
      expect(await keyless.call("execute_code", { code: "1" })).toMatchObject({
        isError: true,
        _meta: { "airlock/problem": { code: "unauthorized" } },
      });
      await keyless.close();
    });
  });
});
