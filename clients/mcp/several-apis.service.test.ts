import { join } from "node:path";
import { expect, test } from "vitest";
import { ScriptedAgent } from "../../api/testing/scripted-agent.ts";
import { startNode } from "../../api/testing/start-node.ts";
import { startSqld } from "../../api/testing/start-sqld.ts";
import { generations } from "./testing/generations.ts";
import { agentToken, key, settings } from "./testing/settings.ts";
import { tempFolder } from "../../shared/testing/temp-folder.ts";

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
