import { describe, expect, test } from "vitest";
import { jsonRequest } from "../scripts/operate/command.ts";
import { createApp } from "./app.ts";
import { preferredWaitS } from "./jobs/routes.ts";
import { ScriptedAgent } from "./testing/scripted-agent.ts";
import { testDeps } from "./testing/temp-store.ts";
import { store, useOneStore } from "./testing/use-store.ts";

describe("on disk", () => {
  const token = "an-agent-token-of-the-test-0123456789";

  useOneStore();

  /** The API on a disk whose syncs end when the test says so. */
  function start() {
    const { promise, resolve } = Promise.withResolvers<void>();
    const db = { ...store.db, durable: () => promise };
    const deps = testDeps(db, store.folder, Date.now, { agent_tokens: [token] });
    const app = createApp(deps);
    const answered: string[] = [];
    const post = async (path: string, body: object) => {
      const headers = { Authorization: `Bearer ${token}` };
      const answer = await app.request(path, jsonRequest("POST", body, headers));
      answered.push(path);
      return answer;
    };
    return { post, answered, endSync: resolve };
  }

  test("nothing is answered before it is on disk, except polls", async () => {
    const { post, answered, endSync } = start();
    const submitted = post("/execute/async", { code: "1" });
    const agent = new ScriptedAgent("http://unused", token);
    const request = agent.pollRequest({ free_slots: 1, wait_s: 20 });
    const polled = await post("/agent/v1/poll", request);
    const { jobs } = (await polled.json()) as { jobs: { lease_id: string }[] };
    expect(jobs).toHaveLength(1);

    const ended = post(`/agent/v1/leases/${jobs[0]?.lease_id}/release`, {
      error: { type: "internal_error", message: "", phase: "startup" },
    });
    expect(answered).toEqual(["/agent/v1/poll"]);
    endSync();
    expect((await submitted).status).toBe(202);
    expect((await ended).status).toBe(200);
  });
});

describe("a file of the console", () => {
  useOneStore();

  test("is compressed once for all who take that, and is sent as it is to others", async () => {
    const text = "let x;\n".repeat(10_000);
    const asked: string[] = [];
    const asset = async (name: string) => {
      asked.push(name);
      return name.endsWith("/a.js") ? new Response(text).body! : undefined;
    };
    const app = createApp({ ...testDeps(store.db, store.folder, Date.now), asset });
    const ask = (encoding: string, name = "a.js") =>
      app.request(`/console/assets/${name}`, { headers: { "Accept-Encoding": encoding } });
    const plain = await ask("br");
    expect([await plain.text(), plain.headers.get("Content-Encoding")]).toEqual([text, null]);
    expect(plain.headers.get("Vary")).toBe("Accept-Encoding");
    const together = Array.from({ length: 3 }, () => ask("gzip, br"));
    for (const answer of [...together, ask("gzip")]) {
      const { body, headers } = await answer;
      expect(headers.get("Content-Encoding")).toBe("gzip");
      const unzipped = body!.pipeThrough(new DecompressionStream("gzip"));
      expect(await new Response(unzipped).text()).toBe(text);
    }
    expect(asked).toHaveLength(2);
    expect((await ask("gzip", "none.js")).status).toBe(404);
  });
});

test.each([
  ["wait=10", 10],
  ["respond-async, wait=5", 5],
  ['WAIT = "7" ; x=1', 7],
  ["wait=3, wait=9", 3],
  ["wait=0", 0],
  ["wait=999999999", 86_400],
  ["wait=-1", undefined],
  ["wait=soon", undefined],
  ["wait", undefined],
  ["await=3", undefined],
  ["", undefined],
  [undefined, undefined],
])("Prefer: %s waits %s s", (header, seconds) => {
  expect(preferredWaitS(header)).toBe(seconds);
});
