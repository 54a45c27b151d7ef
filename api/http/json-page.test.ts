import { beforeEach, describe, expect, test } from "vitest";
import type { Config } from "../../shared/config/config.ts";
import type { PollReply } from "../../shared/wire/agent/lease.ts";
import { createApp } from "../app.ts";
import { ScriptedAgent, success } from "../testing/scripted-agent.ts";
import { testDeps } from "../testing/test-deps.ts";
import { store, useStore } from "../testing/use-store.ts";

const token = "a-token-of-16-characters";
useStore();
let app: ReturnType<typeof createApp>;
let agent: ScriptedAgent;
let lease: string;

const post = async (path: string, body: object): Promise<Response> =>
  app.request(path, {
    method: "POST",
    headers: { "Content-Type": "application/json", Authorization: `Bearer ${token}` },
    body: JSON.stringify(body),
  });
const poll = async (changes: object): Promise<PollReply> =>
  (await (await post("/agent/v1/poll", agent.pollRequest(changes))).json()) as PollReply;
const tell = (what: string, report: object) => post(`/agent/v1/leases/${lease}/${what}`, report);

beforeEach(async () => {
  const compat: Config["compat"] = ["sandbox-fusion", "dify"];
  const config = { agent_tokens: [token], compat };
  const deps = testDeps(store.db, store.folder, Date.now, config);
  app = createApp({ ...deps, silenceMs: 10 });
  agent = new ScriptedAgent("http://unused", token);
  await poll({ free_slots: 0 });
});

async function take(): Promise<void> {
  const { jobs } = await poll({ free_slots: 1, wait_s: 20 });
  lease = jobs[0]!.lease_id;
}

describe.each([
  ["/execute", { code: "1" }, '"success":true'],
  ["/compat/sandbox-fusion/run_code", { code: "1", language: "python" }, '"status":"Success"'],
  ["/compat/dify/v1/sandbox/run", { code: "1", language: "python3" }, '"message":"success"'],
])("%s", (path, request, expected) => {
  test("sends white space while the code runs, not while its status may change", async () => {
    let isAnswered = false;
    const answer = post(path, request).finally(() => (isAnswered = true));
    await new Promise((resolve) => setTimeout(resolve, 100));
    expect(isAnswered).toBe(false);
    await take();
    const { status, body } = await answer;
    expect(status).toBe(200);
    const texts = body!.pipeThrough(new TextDecoderStream()).getReader();
    for (let n = 0; n < 3; n++) expect((await texts.read()).value).toBe(" ");
    await tell("result", success);
    let rest = "";
    for (let part = await texts.read(); !part.done; part = await texts.read()) rest += part.value;
    expect(rest.trimStart()).toMatch(/^\{.*\}$/);
    expect(rest).toContain(expected);
  });

  test("cancels the job if the client hangs up then", async () => {
    const answer = post(path, request);
    await take();
    await (await answer).body!.cancel();
    const told = async () => (await poll({ free_slots: 0, leases: [lease] })).cancel;
    await expect.poll(told).toEqual([lease]);
  });

  test("breaks off if the service fails then", async () => {
    const answer = post(path, request);
    await take();
    const { body } = await answer;
    await poll({ free_slots: 0, breaker: { ...agent.status().breaker, state: "open" } });
    await tell("release", { error: { type: "docker_error", message: "", phase: "startup" } });
    await expect(new Response(body).text()).rejects.toThrow(/./);
  });
});
