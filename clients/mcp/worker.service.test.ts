import { afterAll, beforeAll, beforeEach, describe } from "vitest";
import { ScriptedAgent } from "../../api/testing/scripted-agent.ts";
import { startWorker, startWorkerd } from "../../api/testing/start-worker.ts";
import { agentToken, generations, key, settings } from "./testing/generations.ts";
import { describeCancelling, describeMcp } from "./testing/rows.ts";

describe("MCP in workerd", () => {
  describeMcp(() => startWorker(settings), true);
});

describe("MCP in workerd, without wrangler's proxy", () => {
  let service: Awaited<ReturnType<typeof startWorkerd>>;
  let agent: ScriptedAgent;
  beforeAll(async () => {
    service = await startWorkerd(settings, true);
  });
  beforeEach(() => {
    agent = new ScriptedAgent(service.url, agentToken);
    return () => agent.close();
  });
  afterAll(() => service?.close());

  describe.each(Object.entries(generations))("%s", (_name, { http }) => {
    describeCancelling(
      () => http({ url: service.url, key }),
      () => ({ agent, url: service.url }),
    );
  });
});
