import { expect } from "vitest";
import { ToolCalls } from "../../../shared/wire/executions.ts";
import { AnswersReply } from "../../../shared/wire/leases.ts";
import { limits } from "../../../shared/wire/limits.ts";
import { Follower } from "../follower.ts";
import type { ScriptedAgent } from "../scripted-agent.ts";
import { type Api, body, expectFault, problemOf, type Row, test, working } from "./api.ts";

const getPrice = {
  name: "get_price",
  description: "The price of an item.",
  parameters: { type: "object", properties: { item: { type: "string" } }, required: ["item"] },
};
export const asked = { tools: [getPrice] };

const refused: [path: string, fields: object][] = [
  ...["class", "print", "display", "a b", "__name__", "prüfe"].map((name): [string, object] => [
    "tools.0.name",
    { tools: [{ name }] },
  ]),
  ["tools.1.name", { tools: [getPrice, getPrice] }],
  ["tools.0.parameters", { tools: [{ name: "f", parameters: [] }] }],
  ["tools.0.parameters", { tools: [{ name: "f", parameters: { properties: [] } }] }],
  ["tools.0.parameters", { tools: [{ name: "f", parameters: { required: [1] } }] }],
  ["tools.0.input_schema", { tools: [{ name: "f", input_schema: {} }] }],
  ["tools", { tools: Array.from({ length: 101 }, (_, n) => ({ name: `f${n}` })) }],
  ["max_attempts", { ...asked, max_attempts: 2 }],
  ["results", { ...asked, results: false }],
  ["tools", { ...asked, language: "bash" }],
  ["tool_timeout", { tool_timeout: 5 }],
  ["tool_timeout", { tools: [], tool_timeout: 5 }],
];

export const toolRows: Row[] = [
  test("`tools` reach the agent, with one attempt, results and a time limit of their own", async (api) => {
    const { agent, job_id, lease_id } = await working(api, { ...asked, tool_timeout: 7 });
    const plain = await working(api, { tools: [] });
    await agent.result(lease_id);
    expect(await api.record(job_id)).toMatchObject({
      ...asked,
      tool_timeout: 7,
      max_attempts: 1,
      results: [],
    });
    expect(await api.record(plain.job_id)).not.toHaveProperty("tools");
    await api.submit(asked);
    const job = await agent.takeJob();
    const tools = { functions: [getPrice], timeout_s: limits.toolTimeoutDefaultS };
    expect(job).toMatchObject({ results: true, tools });
  }),
  test("`tools` with a name or parameters that are none, too many of them, or beside what they exclude are 400 at that path", async (api) => {
    for (const [path, fields] of refused)
      expectFault(await api.post("/execute/async", { code: "x", ...fields }), path);
  }),
  test("A tool_timeout above max_timeout is 422", async (api) => {
    const fields = { code: "x", ...asked, tool_timeout: 86_400 };
    const reply = await api.post("/execute/async", fields);
    expect(reply.status).toBe(422);
    expect(problemOf(reply).errors?.[0]?.path).toBe("tool_timeout");
  }),
  test("The same idempotency key with other `tools` is 409, with the same ones the same job", async (api) => {
    const key = { idempotency_key: crypto.randomUUID() };
    const first = await api.submit({ ...key, ...asked });
    const again = await api.submit({ ...key, ...asked, max_attempts: 1 });
    expect(again.job_id).toBe(first.job_id);
    for (const tools of [[], [{ ...getPrice, awaitable: true }]]) {
      const other = await api.post("/execute/async", { code: "print(1)", ...key, tools });
      expect(other.status).toBe(409);
    }
  }),
];

export const toolCall = (number: number, item = "tea") => ({
  number,
  name: "get_price",
  arguments: { item },
  stdout_at: 0,
  stderr_at: 0,
});
const shown = (number: number) => ({
  number,
  main: false,
  data: { "text/plain": "x" },
  stdout_at: 0,
  stderr_at: 0,
});
const callsPath = (id: string, query = "") => `/jobs/${id}/tool-calls${query}`;
const answer = (api: Api, id: string, number: number, given: unknown = { result: 380 }) =>
  api.post(callsPath(id, `/${number}`), given);
const listed = async (api: Api, id: string, query = "") =>
  ToolCalls.parse(body(await api.get(callsPath(id, query))));
/** The answers that an agent gets. */
export const answers = async (agent: ScriptedAgent, lease: string, after: number, waitS = 0) => {
  const reply = await agent.get(`/leases/${lease}/answers?after=${after}&wait_s=${waitS}`);
  expect(reply.status).toBe(200);
  return AnswersReply.parse(body(reply)).answers;
};

/** A job that has made one call. */
async function calling(api: Api, fields: Record<string, unknown> = asked) {
  const world = await working(api, fields);
  await world.agent.post(world.lease_id, "items", { items: [toolCall(1)] });
  return world;
}

export const toolCallRows: Row[] = [
  test("POST /execute with `tools` brings events; without them it is 400, as nobody would know the job", async (api) => {
    expectFault(await api.post("/execute", { code: "x", ...asked }), "tools");
    const agent = await api.connected();
    await using live = await Follower.open(
      api.url,
      "/execute",
      { Accept: "text/event-stream" },
      { code: "x", ...asked },
    );
    const { lease_id } = await agent.takeJob();
    await agent.post(lease_id, "items", { items: [toolCall(1)] });
    const { data } = await live.until(({ event }) => event === "tool_call");
    expect((await answer(api, data.job_id, 1)).status).toBe(200);
    expect(await answers(agent, lease_id, 0, 20)).toEqual([{ number: 1, result_json: "380" }]);
    await agent.result(lease_id);
    expect((await live.rest()).at(-1)).toMatchObject({ event: "end" });
  }),
  test("A call is the event `tool_call` for who follows, and waits in GET /jobs/{id}/tool-calls until it has its one answer", async (api) => {
    const { agent, job_id, lease_id } = await working(api, asked);
    await using live = await Follower.open(api.url, `/jobs/${job_id}/events`, {});
    const waiting = listed(api, job_id, "?wait=20");
    await agent.post(lease_id, "items", { items: [shown(1), toolCall(2)] });
    expect(await waiting).toEqual({ job_id, status: "running", calls: [toolCall(2)] });
    const event = await live.until(({ event }) => event === "tool_call");
    expect(event.data).toMatchObject({ job_id, attempt: 1, ...toolCall(2) });
    expect((await listed(api, job_id, "?after=2")).calls).toEqual([]);
    const pending = answers(agent, lease_id, 0, 20);
    const reply = await answer(api, job_id, 2);
    expect(body(reply)).toEqual({ job_id, number: 2 });
    expect(await pending).toEqual([{ number: 2, result_json: "380" }]);
    expect((await answer(api, job_id, 2)).status).toBe(409);
    expect((await listed(api, job_id)).calls).toEqual([]);
    await agent.result(lease_id);
    await using late = await Follower.open(api.url, `/jobs/${job_id}/events`, {});
    expect((await late.rest()).map(({ event }) => event)).not.toContain("tool_call");
  }),
  test("Who follows a running job anew gets the calls that wait, not those that have an answer", async (api) => {
    const { agent, job_id, lease_id } = await working(api, asked);
    await agent.post(lease_id, "items", { items: [toolCall(1), toolCall(2)] });
    await answer(api, job_id, 1);
    await using live = await Follower.open(api.url, `/jobs/${job_id}/events`, {});
    const event = await live.until(({ event }) => event === "tool_call");
    expect(event.data).toMatchObject({ number: 2 });
  }),
  test("An agent gets the answers in their order, and again after a lost reply", async (api) => {
    const { agent, job_id, lease_id } = await working(api, asked);
    const items = [1, 2, 3, 4, 5, 6].map((number) => toolCall(number));
    for (const _again of [1, 2]) await agent.post(lease_id, "items", { items });
    for (const number of [5, 1, 6]) await answer(api, job_id, number, { error: `no\0${number}` });
    const expected = [5, 1, 6].map((number) => ({ number, error: `no\ufffd${number}` }));
    expect(await answers(agent, lease_id, 0)).toEqual(expected);
    expect(await answers(agent, lease_id, 0)).toEqual(expected);
    expect(await answers(agent, lease_id, 2)).toEqual(expected.slice(2));
  }),
  test("Numbers in arguments and results arrive as they were written", async (api) => {
    const { agent, job_id, lease_id } = await working(api, asked);
    const odd = "[1.0,12345678901234567890,1e400]";
    const text = JSON.stringify(toolCall(1)).replace('"tea"', odd);
    const posted = await agent.send("POST", `/leases/${lease_id}/items`, `{"items":[${text}]}`);
    expect(posted.status).toBe(200);
    expect((await api.get(callsPath(job_id))).text).toContain(odd);
    await api.post(callsPath(job_id, "/1"), `{"result":${odd}}`);
    expect(await answers(agent, lease_id, 0)).toEqual([{ number: 1, result_json: odd }]);
  }),
  test("Any JSON is a result; an answer with neither a result nor an error, or with more, is 400, and the call still waits", async (api) => {
    const { agent, job_id, lease_id } = await working(api, asked);
    const given = ["null", "1.0", '""', "false"];
    await agent.post(lease_id, "items", { items: given.map((_, n) => toolCall(n + 1)) });
    for (const wrong of [{}, { result: 1, error: "x" }, { error: 1 }, { result: 1, more: 1 }])
      expect((await answer(api, job_id, 1, wrong)).status).toBe(400);
    expect((await listed(api, job_id)).calls).toHaveLength(given.length);
    for (const [n, result] of given.entries())
      await api.post(callsPath(job_id, `/${n + 1}`), `{"result":${result}}`);
    expect(await answers(agent, lease_id, 0)).toEqual(
      given.map((result_json, n) => ({ number: n + 1, result_json })),
    );
  }),
  test("A number of a call has one spelling: 404 for any other, and the call still waits", async (api) => {
    const { job_id } = await calling(api);
    for (const other of ["1.0", "01", "1e0", "+1", "%201", "0", "-1", "x", "99999999999999999"]) {
      const reply = await api.post(callsPath(job_id, `/${other}`), { result: 380 });
      expect([other, reply.status]).toEqual([other, 404]);
    }
    expect((await listed(api, job_id)).calls).toHaveLength(1);
    expect((await answer(api, job_id, 1)).status).toBe(200);
  }),
  test("An answer above 1 MiB is 413, and the call still waits", async (api) => {
    const { job_id } = await calling(api);
    for (const size of [limits.toolAnswerMaxBytes, 3 * limits.toolAnswerMaxBytes]) {
      const reply = await answer(api, job_id, 1, { result: "x".repeat(size) });
      expect(reply.status).toBe(413);
      expect(problemOf(reply).detail).not.toContain("max_request_bytes");
    }
    const most = "x".repeat(limits.toolAnswerMaxBytes - 2);
    expect((await answer(api, job_id, 1, { result: most })).status).toBe(200);
  }),
  test("An answer to a call that was not made, or to what was shown, is 404", async (api) => {
    const { agent, job_id, lease_id } = await calling(api);
    await agent.post(lease_id, "items", { items: [shown(2)] });
    for (const number of [2, 3]) {
      expect((await answer(api, job_id, number)).status).toBe(404);
    }
    expect((await answer(api, crypto.randomUUID(), 1)).status).toBe(404);
    expect((await api.get(callsPath(crypto.randomUUID()))).status).toBe(404);
  }),
  test("When the job ends, GET /jobs/{id}/tool-calls says so, and an answer that comes then is 409", async (api) => {
    const { agent, job_id, lease_id } = await calling(api);
    const waiting = listed(api, job_id, "?after=1&wait=20");
    await agent.result(lease_id);
    expect(await waiting).toEqual({ job_id, status: "succeeded", calls: [] });
    const reply = await answer(api, job_id, 1);
    expect(reply.status).toBe(409);
    expect(problemOf(reply).detail).toContain("succeeded");
  }),
  test("An answer that comes while the job ends is stored, or is told that the job has ended", async (api) => {
    for (let round = 0; round < 5; round++) {
      const { agent, job_id, lease_id } = await calling(api);
      const [reply] = await Promise.all([answer(api, job_id, 1), agent.result(lease_id)]);
      if (reply.status !== 200) expect(problemOf(reply).detail).toContain("succeeded");
    }
  }),
  test("Calls are not among the record's results, and come with them in one order", async (api) => {
    const { agent, job_id, lease_id } = await working(api, asked);
    await agent.post(lease_id, "items", { items: [shown(1), toolCall(2)] });
    const other = { items: [toolCall(2, "coffee")] };
    expect((await agent.post(lease_id, "items", other)).status).toBe(409);
    await agent.result(lease_id, { items: [shown(3)] });
    expect(await api.record(job_id, "")).toMatchObject({ results: [shown(1), shown(3)] });
  }),
  test("With `all`, GET /jobs/{id}/tool-calls lists each call with its answer, also after the job's end", async (api) => {
    const { agent, job_id, lease_id } = await working(api, asked);
    const numbers = [1, 2, 4];
    await agent.post(lease_id, "items", {
      items: [...numbers.map((one) => toolCall(one)), shown(3)],
    });
    await answer(api, job_id, 1);
    await answer(api, job_id, 2, { error: "no tea" });
    const calls = [
      { ...toolCall(1), answer: { result: 380 } },
      { ...toolCall(2), answer: { error: "no tea" } },
      toolCall(4),
    ];
    expect(await listed(api, job_id, "?all=true")).toEqual({ job_id, status: "running", calls });
    await agent.result(lease_id);
    const ended = { job_id, status: "succeeded" };
    expect(await listed(api, job_id, "?all=true")).toEqual({ ...ended, calls });
    expect(await listed(api, job_id, "?all=true&after=2")).toEqual({ ...ended, calls: [calls[2]] });
    expect(await listed(api, job_id)).toEqual({ ...ended, calls: [] });
  }),
  test("With `all`, many calls come in pages, and large ones in small pages", async (api) => {
    const { agent, job_id, lease_id } = await working(api, asked);
    const items = Array.from({ length: 110 }, (_, i) => toolCall(i + 1));
    for (let i = 0; i < items.length; i += 22) {
      await agent.post(lease_id, "items", { items: items.slice(i, i + 22) });
    }
    const sizes: number[] = [];
    const read = async () => {
      const numbers: number[] = [];
      sizes.length = 0;
      for (;;) {
        const after = `&after=${numbers.at(-1) ?? 0}`;
        const { calls } = await listed(api, job_id, `?all=true${after}`);
        if (calls.length === 0) return numbers;
        sizes.push(calls.length);
        numbers.push(...calls.map(({ number }) => number));
      }
    };
    expect(await read()).toEqual(items.map(({ number }) => number));
    expect(sizes).toEqual([100, 10]);
    const large = "x".repeat(600_000);
    for (const number of [2, 6]) await answer(api, job_id, number, { result: large });
    await read();
    expect(sizes).toEqual([8, 100, 2]);
  }),
];
