import { Hono } from "hono";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { jsonRequest } from "../../scripts/operate/command.ts";
import type { Config } from "../../shared/config/config.ts";
import { countTurns } from "../../shared/testing/test-file.ts";
import { createApp, onError } from "../app.ts";
import { expireLeases } from "../jobs/lease.ts";
import { ScriptedAgent, success } from "../testing/scripted-agent.ts";
import { onExecute } from "../testing/statements.ts";
import { leasedJob, storeJob, testDeps } from "../testing/temp-store.ts";
import { store, useStore } from "../testing/use-store.ts";
import { holdAnswer, holdBody, jsonPage, jsonRecord } from "./answer.ts";
import { holdBytes, unbounded } from "./body.ts";
import type { AppEnv } from "./context.ts";

const token = "a-token-of-16-characters";
useStore();
let app: ReturnType<typeof createApp>;
let agent: ScriptedAgent;
let lease: string;
let skewMs: number;

const post = async (path: string, body: object): Promise<Response> =>
  app.request(path, jsonRequest("POST", body));
const tell = (what: string, report: object) => agent.post(lease, what, report);

beforeEach(async () => {
  const compat: Config["compat"] = ["sandbox-fusion", "dify", "piston", "librechat"];
  const config = { agent_tokens: [token], compat };
  skewMs = 0;
  const deps = testDeps(store.db, store.folder, () => Date.now() + skewMs, config);
  app = createApp({ ...deps, silenceMs: 10 });
  agent = new ScriptedAgent(app, token);
  await agent.poll({ free_slots: 0 });
});

async function take(): Promise<void> {
  lease = (await agent.takeJob()).lease_id;
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
    const told = async () => (await agent.poll({ free_slots: 0 })).cancel;
    await expect.poll(told).toEqual([lease]);
  });

  test("breaks off if the service fails then", async () => {
    const answer = post(path, request);
    await take();
    const { body } = await answer;
    await agent.poll({ free_slots: 0, breaker: { ...agent.status().breaker, state: "open" } });
    await tell("release", { error: { type: "docker_error", message: "", phase: "startup" } });
    await expect(new Response(body).text()).rejects.toThrow(/./);
  });
});

const piston = { language: "python", version: "*", files: [{ content: "1" }] };
const tools = [{ name: "ask" }];

test.each([
  [
    "sandbox-fusion/run_code",
    { code: "1", language: "python", run_timeout: 1, compile_timeout: 1 },
    504,
  ],
  ["dify/v1/sandbox/run", { code: "1", language: "python3" }, 503],
  ["piston/api/v2/execute", piston, 503],
  ["librechat/v1/exec", { code: "1", lang: "py" }, 429],
  ["librechat/v1/exec/programmatic", { code: "1", lang: "py", tools }, 429],
])("%s says whole that no agent had time for the job", async (path, request, expected) => {
  const answer = post(`/compat/${path}`, request);
  const queued = async () =>
    ((await (await app.request("/executions")).json()) as { count: number }).count;
  await expect.poll(queued).toBe(1);
  // Longer than a facade holds a job, and the agent still counts as connected.
  skewMs = 16_000;
  const { status, body } = await answer;
  expect(status).toBe(expected);
  expect(await new Response(body).text()).toContain(
    "No agent took the job within its queue_timeout",
  );
});

const MiB = 1024 * 1024;
const text = "x".repeat(2 * MiB);

/** An app with large answers of each kind. A client may have 4 MiB of them under way, all together 8 MiB. */
function large(add: (app: Hono<AppEnv>) => unknown = () => {}) {
  const answers = { each: 4 * MiB + 1000, all: 8 * MiB + 1000 };
  const app = new Hono<AppEnv>();
  app.use(holdBytes((c) => c.req.header("X-Client") ?? "", { bodies: unbounded, answers }));
  app.onError(onError);
  app.get("/record", async (c) => jsonRecord(c, { text }));
  app.get("/file", async (c) =>
    c.body(await holdBody(c, text.length, async () => new Response(text).body!)),
  );
  app.get("/facade", (c) => {
    c.get("answer").take(0);
    return holdAnswer(c, new Response(text));
  });
  app.get("/small", async (c) => jsonRecord(c, { small: "x".repeat(60 * 1024) }));
  add(app);
  return (client: string, path: string, method = "GET") =>
    app.request(path, { method, headers: { "X-Client": client } });
}

afterEach(() => void vi.useRealTimers());

test.each(["/record", "/file"])(
  "answers %s are refused while those of their client, or of all, hold too many bytes",
  async (path) => {
    const ask = large();
    const [first, second] = [await ask("a", path), await ask("a", path)];
    const refused = await ask("a", path);
    expect([refused.status, refused.headers.get("Retry-After")]).toEqual([503, "1"]);
    expect(await refused.text()).toContain("The answers to your requests");
    expect((await ask("a", "/small")).status).toBe(200);
    // Its body is never read.
    expect((await ask("c", "/record", "HEAD")).status).toBe(200);
    const others = [await ask("b", path), await ask("b", path)];
    expect(await (await ask("c", path)).text()).toContain("The answers to all requests");
    expect((await first.text()).length).toBeGreaterThanOrEqual(text.length);
    await second.body!.cancel();
    for (const other of others) await other.body!.cancel();
    for (const client of ["a", "c"])
      expect((await (await ask(client, path)).text()).length).toBeGreaterThan(MiB);
  },
);

test.each([
  [
    "small items: 32 are read together and sent as one piece, and four pieces share a turn",
    0,
    8,
    [1, 3],
  ],
  ["items of half a MiB: two are read together", MiB / 2, 128, [16, 33]],
])("a page with %s", async (_what, bytes, count, [least, most]) => {
  const items = Array.from({ length: 256 }, (_, n) => ({ n }));
  const page = { limit: 256, offset: 0 };
  const read: number[] = [];
  const render = async (some: { n: number }[]) => {
    read.push(some.length);
    return some;
  };
  const ask = large((app) =>
    app.get("/page", (c) => jsonPage(c, items, page, () => bytes, render)),
  );
  const body: ReadableStream<Uint8Array> = (await ask("a", "/page")).body!;
  const reader = body.getReader();
  using turns = countTurns();
  const pieces: { text: string; turn: number }[] = [];
  for (let part = await reader.read(); !part.done; part = await reader.read())
    pieces.push({ text: new TextDecoder().decode(part.value), turn: turns.now() });
  const whole = pieces.map(({ text: piece }) => piece).join("");
  expect(JSON.parse(whole)).toEqual({ items, ...page, has_more: false, count: 256 });
  expect(read).toEqual(Array.from({ length: count }, () => 256 / count));
  expect(pieces).toHaveLength(count);
  // So that others run as well. The first turn may have begun before, and a slow machine's timers may share one.
  const taken = new Set(pieces.map(({ turn }) => turn)).size;
  expect(taken).toBeGreaterThanOrEqual(least!);
  expect(taken).toBeLessThanOrEqual(most!);
});

test("a page reads jobs that were lost one by one: nobody knows how much output each had", async () => {
  for (let n = 0; n < 2; n++) await leasedJob(store.db, { maxAttempts: 1 });
  await expireLeases(store.db, 2000);
  await storeJob(store.db);
  await storeJob(store.db);
  const reads: string[] = [];
  const stop = onExecute(store.db.client, (sql) => {
    if (/^select .* from "payloads"/.test(sql)) reads.push(sql);
  });
  const { items } = (await (await app.request("/executions")).json()) as { items: unknown[] };
  stop();
  expect([items.length, reads.length]).toEqual([4, 2]);
});

test("what a facade has answered counts until it is taken", async () => {
  const ask = large();
  const unread = [];
  for (let n = 0; n < 3; n++) {
    const reader = (await ask("a", "/facade")).body!.getReader();
    await reader.read();
    unread.push(reader);
  }
  expect((await ask("a", "/facade")).status).toBe(503);
  for (const reader of unread) await reader.cancel();
  expect(await (await ask("a", "/facade")).text()).toBe(text);
});

test.each(["/record", "/file", "/facade"])(
  "an answer %s breaks off if its client takes none of it for half a minute, and counts no longer",
  async (path) => {
    vi.useFakeTimers({ shouldAdvanceTime: true });
    const ask = large();
    const read = async () => {
      const reader = (await ask("a", path)).body!.getReader();
      await reader.read();
      return reader;
    };
    const slow = await read();
    const stalled = [await read()];
    // It was not refused before it began.
    if (path === "/facade") stalled.push(await read());
    expect((await ask("a", path)).status).toBe(503);
    for (let n = 0; n < 4; n++) {
      await vi.advanceTimersByTimeAsync(20_000);
      expect((await slow.read()).done).toBe(false);
    }
    for (const reader of stalled) await expect(reader.read()).rejects.toThrow("took less");
    expect((await ask("a", path)).status).toBe(200);
  },
);
