import { expect } from "vitest";
import { type Api, body } from "./api.ts";
import { ask, key, linesOf, type Sandbox, server } from "./e2b-sandbox.ts";
import { on } from "./row.ts";
import { holder } from "./serving.ts";
import type { ScriptedAgent } from "../scripted-agent.ts";

async function create(api: Api, agent: ScriptedAgent, fields: object = {}): Promise<Sandbox> {
  const asked = { templateID: "code-interpreter-v1", timeout: 60, ...fields };
  const answer = ask(api, "POST", "/v2/sandboxes", key, asked);
  await agent.startSession();
  const { status, text } = await answer;
  expect(status).toBe(201);
  return JSON.parse(text) as Sandbox;
}

const dataKeys = ({ sandboxID, envdAccessToken }: Sandbox) => ({
  "E2b-Sandbox-Id": sandboxID,
  "X-Access-Token": envdAccessToken,
});

export const e2bRows = on(server, [
  {
    rule: "E2B: a sandbox is a session without an idle timeout, which the client makes, lists, keeps and ends",
    async check(api) {
      const agent = holder(api);
      // Another tenant has a job type "base"; clients before 2.51 always ask for the internet.
      const theirs = { templateID: "base", allow_internet_access: true };
      const asked = { ...theirs, metadata: { user: "a & b" }, envVars: { A: "b" } };
      const made = await create(api, agent, asked);
      const names = { templateID: "default", sandboxID: made.sandboxID, clientID: "airlock" };
      const token = made.envdAccessToken;
      expect(made).toEqual({
        ...names,
        envdVersion: "0.4.0",
        envdAccessToken: token,
        trafficAccessToken: token,
        domain: null,
      });
      const session = body(await api.get(`/sessions/${made.sandboxID}`, key));
      expect(session).toMatchObject({ idle_timeout: null, metadata: { user: "a & b" } });
      const one = await ask(api, "GET", `/sandboxes/${made.sandboxID}`);
      const shown = JSON.parse(one.text) as Record<string, string>;
      expect(shown).toMatchObject({
        ...names,
        state: "running",
        metadata: { user: "a & b" },
        memoryMB: 512,
      });
      const query = `metadata=${encodeURIComponent(`user=${encodeURIComponent("a & b")}`)}`;
      const listed = await ask(api, "GET", `/v2/sandboxes?${query}&limit=1`);
      expect(JSON.parse(listed.text)).toEqual([shown]);
      const others = await ask(api, "GET", "/v2/sandboxes?metadata=user%3Dbob");
      expect(JSON.parse(others.text)).toEqual([]);

      const path = `/sandboxes/${made.sandboxID}`;
      expect((await ask(api, "POST", `${path}/timeout`, key, { timeout: 600 })).status).toBe(204);
      const connected = await ask(api, "POST", `/v2${path}/connect`, key, { timeout: 60 });
      expect(JSON.parse(connected.text)).toMatchObject(names);
      const kept = JSON.parse((await ask(api, "GET", path)).text) as Record<string, string>;
      const longer = Date.parse(kept["endAt"]!) - Date.parse(shown["endAt"]!);
      expect(longer).toBeGreaterThan(400_000);
      expect((await ask(api, "DELETE", path)).status).toBe(204);
      for (const [method, where] of [
        ["DELETE", path],
        ["GET", path],
        ["POST", `${path}/timeout`],
      ] as const) {
        const gone = await ask(api, method, where, key, method === "POST" ? {} : undefined);
        expect([gone.status, JSON.parse(gone.text)]).toMatchObject([404, { code: 404 }]);
      }
    },
  },
  {
    rule: "E2B: code is a call, and its answer lines of ASCII JSON; a token serves its sandbox's data alone",
    async check(api) {
      const agent = holder(api);
      const [made, other] = [await create(api, agent), await create(api, agent)];
      const asked = { code: "x", env_vars: { A: "b" } };
      const answer = ask(api, "POST", "/execute", dataKeys(made), asked);
      const call = await agent.takeCall();
      expect(call).toMatchObject({
        code: "x",
        timeout_s: 600,
        call: { env: { A: "b" }, context: "default" },
      });
      const item = { number: 1, main: true, stdout_at: 3, stderr_at: 0 };
      await agent.result(call.lease_id, {
        status: "failed",
        exit_code: 1,
        stdout_base64: btoa("out"),
        items: [{ ...item, data: { "text/plain": "é" } }],
        error: { type: "value_error", message: "ValueError: why", phase: "execution" },
      });
      const { status, text, headers } = await answer;
      expect([status, headers.get("Content-Type")]).toEqual([200, "application/x-ndjson"]);
      expect(headers.get("Cache-Control")).toContain("no-transform");
      expect(text).toMatch(/^[\x20-\x7e\n]+$/);
      expect(linesOf(text)).toEqual([
        { type: "error", name: "ValueError", value: "why", traceback: "" },
        { type: "number_of_executions", execution_count: 1 },
        { type: "result", is_main_result: true, text: "é" },
        { type: "stdout", text: "out", timestamp: expect.any(Number) as number },
      ]);

      const [own, stolen] = [dataKeys(made), { ...dataKeys(made), "X-Access-Token": "no" }];
      const swapped = { ...dataKeys(made), "E2b-Sandbox-Id": other.sandboxID };
      for (const wrong of [stolen, swapped, { "E2b-Sandbox-Id": made.sandboxID }]) {
        expect((await ask(api, "GET", "/health", wrong)).status).toBe(401);
        expect((await ask(api, "POST", "/execute", wrong, asked)).status).toBe(401);
      }
      for (const sandbox of [made, other]) {
        const path = `/sandboxes/${sandbox.sandboxID}`;
        expect((await ask(api, "DELETE", path, own)).status).toBe(401);
      }
      expect((await ask(api, "GET", "/health", own)).status).toBe(204);
      for (const { sandboxID } of [made, other])
        await ask(api, "DELETE", `/sandboxes/${sandboxID}`);
      for (const path of ["/health", "/contexts", "/files?path=a"]) {
        expect((await ask(api, "GET", path, own)).status).toBe(502);
      }
      expect((await ask(api, "POST", "/execute", own, { code: "1" })).status).toBe(502);
      const rpc = await ask(api, "POST", "/filesystem.Filesystem/Stat", own, { path: "a" });
      expect(JSON.parse(rpc.text)).toMatchObject({ code: "unavailable" });
    },
  },
  {
    rule: "E2B: refusals have its form and name the field",
    async check(api) {
      const post = (fields: object, headers: Record<string, string> = key) =>
        ask(api, "POST", "/v2/sandboxes", headers, { templateID: "base", ...fields });
      for (const [fields, status, words] of [
        [{ autoPause: true }, 400, "autoPause"],
        [{ network: { allowOut: [] } }, 400, "network"],
        [{ templateID: "open", allow_internet_access: false }, 400, "allow_internet_access"],
        [{ templateID: "theirs", allow_internet_access: false }, 404, "no template theirs"],
        [{ templateID: "theirs", allow_internet_access: true }, 404, "no template theirs"],
        [{ timeout: 1e9 }, 400, "lifetime"],
        [{ templateID: "none" }, 404, "none"],
      ] as const) {
        const refused = await post(fields);
        const message = expect.stringContaining(words) as string;
        expect([refused.status, JSON.parse(refused.text)]).toEqual([
          status,
          { code: status, message },
        ]);
      }
      const wrong = await post({}, { "X-API-Key": "another-key-0123456789" });
      expect([wrong.status, JSON.parse(wrong.text)]).toMatchObject([401, { code: 401 }]);
      expect((await ask(api, "POST", "/sandboxes/x/pause")).status).toBe(501);
      for (const [query, word] of [
        ["order=asc", "order"],
        ["metadata=%2525", "metadata"],
      ]) {
        const listed = await ask(api, "GET", `/v2/sandboxes?${query}`);
        expect([listed.status, listed.text]).toEqual([400, expect.stringContaining(word!)]);
      }
    },
  },
]);
