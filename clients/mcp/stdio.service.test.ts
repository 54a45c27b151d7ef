import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { ScriptedAgent } from "../../api/testing/scripted-agent.ts";
import { type NodeProcess, startNode } from "../../api/testing/start-node.ts";
import { programOf } from "../../shared/testing/program.ts";
import { generations } from "./testing/generations.ts";
import { describeClient } from "./testing/client-rows.ts";
import { describeCancelling } from "./testing/job-rows.ts";
import { agentToken, key, settings } from "./testing/settings.ts";

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
