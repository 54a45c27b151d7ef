import { createHash } from "node:crypto";
import * as fc from "fast-check";
import { describe, expect, it, test } from "vitest";
import type { OutputPart, StreamName } from "../../shared/wire/executions.ts";
import type { EngineHealth } from "../../shared/wire/health.ts";
import { protocolHeader, protocolVersion } from "../../shared/wire/leases.ts";
import { EngineError } from "../sandbox/sandbox.ts";
import { classify, type RunReport } from "../sandbox/verdict.ts";
import { createFakeSandbox } from "../testing/fakes.ts";
import { goodEngine, t, testImage, testJob, useTestAgent } from "../testing/test-agent.ts";
import { RunCancelled } from "./leases.ts";
import { createUnsent } from "./run.ts";

useTestAgent({ hasGoodEngine: true });

it("runs a job and posts its outcome", async () => {
  const job = { timeout_s: 7, input_json: '{"a":1.0}', code: "x" };
  const { lease, ended } = t.begin(job);
  const sandbox = await t.sandbox(0);
  expect(t.specs[0]).toEqual({
    image: testImage,
    labels: { agentId: t.deps.agent.id, agentName: "test", leaseId: t.specs[0]?.labels.leaseId },
    memoryBytes: 512 * 1024 ** 2,
    cpus: 1,
    pids: 128,
    network: "none",
    loopback: "tcp",
    runtime: null,
    seccomp: true,
    packages: "none",
    env: {},
    preload: [],
    gpus: [],
  });
  const running = await sandbox.running;
  expect(running.job).toEqual({
    code: "x",
    inputJson: '{"a":1.0}',
    timeoutMs: 7000,
    maxSockets: 1024,
    caps: { streamBytes: 1024 ** 2, artifactBytes: 1024 ** 2 },
  });
  t.clock.advance(20);
  sandbox.finish({
    stdout: Buffer.from("hé\n"),
    stderr: Buffer.from([0xff, 0]),
    stderrTruncated: true,
    result: { kind: "object", text: '{"b":2.0}' },
    executionMs: 12.4,
  });
  await ended;
  const { path, json } = await t.api.request("/result");
  expect(path).toBe(`/leases/${lease.job.lease_id}/result`);
  expect(json).toEqual({
    status: "succeeded",
    exit_code: 0,
    error: null,
    stdout_base64: Buffer.from("hé\n").toString("base64"),
    stderr_base64: "/wA=",
    stdout_truncated: false,
    stderr_truncated: true,
    output_json: '{"b":2.0}',
    timing: {
      startup_ms: 0,
      dep_install_ms: 0,
      execution_ms: 12,
      total_ms: 20,
      phase_at_exit: "completed",
    },
    resource_usage: { max_rss_mb: 10, cpu_time_ms: 3, wall_time_ms: 6 },
    job_ref: `default@${testImage}`,
    container_runtime: "runc",
    container_backend: "engine",
  });
  await sandbox.closed;
});

it("removes the container when the result is posted, not before", async () => {
  const { ended } = t.begin();
  const sandbox = await t.sandbox(0);
  const removed = sandbox.closed.then(() => "removed");
  const posted = t.api.request("/result").then(() => "posted");
  sandbox.finish();
  expect(await Promise.race([removed, posted])).toBe("posted");
  await removed;
  await ended;
});

describe("while the code runs", () => {
  it("reports the start without delaying the code", async () => {
    t.api.answer("/started", "silence");
    const { ended } = t.begin();
    const sandbox = await t.sandbox(0);
    await t.clock.sleeping(50);
    t.clock.advance(50);
    expect((await t.api.request("/started")).json).toEqual({ job_ref: `default@${testImage}` });
    sandbox.finish();
    await ended;
    expect(t.api.count("/result")).toBe(1);
  });

  it("does not report the start of code that ends at once", async () => {
    const { ended } = t.begin();
    const sandbox = await t.sandbox(0);
    await t.clock.sleeping(50);
    t.clock.advance(49);
    sandbox.finish();
    await ended;
    t.clock.advance(1);
    await t.api.request("/result");
    expect(t.api.count("/started")).toBe(0);
  });

  it("sends new output each second, and nothing twice", async () => {
    const { ended } = t.begin();
    const { sandbox, options } = await t.running();
    options.onOutput?.("stdout", Buffer.from("one "));
    options.onOutput?.("stdout", Buffer.from("two"));
    await t.clock.sleeping(50);
    t.clock.advance(50);
    await t.clock.sleeping(1000);
    t.clock.advance(1000);
    await t.api.request("/logs", 1);
    options.onOutput?.("stdout", Buffer.from("three"));
    options.onOutput?.("stderr", Buffer.from("oh"));
    await t.clock.sleeping(1000);
    t.clock.advance(1000);
    await t.api.request("/logs", 2);
    await t.clock.sleeping(1000);
    sandbox.finish();
    await ended;
    const chunks = t.api.received.filter(({ path }) => path.endsWith("/logs"));
    expect(chunks.map(({ json }) => json)).toEqual([
      { parts: [{ stream: "stdout", offset: 0, data_base64: btoa("one two") }] },
      {
        parts: [
          { stream: "stdout", offset: 7, data_base64: btoa("three") },
          { stream: "stderr", offset: 0, data_base64: btoa("oh") },
        ],
      },
    ]);
  });

  it("sends what the code shows at once while somebody follows, and the rest with the result", async () => {
    const { lease, ended } = t.begin();
    lease.followed.learn({ watch: true });
    const { sandbox, options } = await t.running();
    const item = (number: number) => {
      return { number, main: false, data: { "text/plain": "x" }, stdoutAt: number, stderrAt: 0 };
    };
    options.onItem?.(item(1));
    const { json } = await t.api.request("/items");
    const sent = { main: false, data: { "text/plain": "x" }, stderr_at: 0 };
    expect(json).toEqual({ items: [{ ...sent, number: 1, stdout_at: 1 }] });
    t.clock.advance(40);
    options.onItem?.(item(2));
    // The first post was answered: the next one waits for the rest of the 100 ms between two.
    await t.clock.sleeping(60);
    sandbox.finish({ items: [item(1), item(2)], itemsTruncated: true });
    await ended;
    expect(t.api.count("/items")).toBe(1);
    expect((await t.api.request("/result")).json).toMatchObject({
      items: [{ ...sent, number: 2, stdout_at: 2 }],
      results_truncated: true,
    });
  });

  it("drops the work when the API says that the lease is another's", async () => {
    t.api.answer("/started", { status: 409 });
    const { lease, ended } = t.begin();
    const sandbox = await t.sandbox(0);
    await t.clock.sleeping(50);
    t.clock.advance(50);
    await sandbox.closed;
    await ended;
    expect(lease.drop.signal.aborted).toBe(true);
    expect(t.api.count("/result")).toBe(0);
  });

  it.each([
    ["request", "cancelled"],
    ["stop", "The agent was stopped while the code ran."],
  ] as const)("is cancelled by %s, with what it printed", async (by, message) => {
    const { lease, ended } = t.begin();
    const { options } = await t.running();
    expect(options.signal.aborted).toBe(false);
    lease.cancel.abort(new RunCancelled(by));
    await ended;
    expect(options.signal.aborted).toBe(true);
    const { json } = await t.api.request("/result");
    expect(json).toMatchObject({
      status: "cancelled",
      exit_code: 143,
      error: { type: "cancelled", message, phase: "execution" },
      timing: { phase_at_exit: "execution" },
    });
  });
});

describe("input files", () => {
  const content = JSON.stringify("tea");
  const sha256 = createHash("sha256").update(content).digest("hex");
  const files = [{ name: "a/tea.json", size_bytes: content.length, sha256 }];

  it("that do not come within startup_timeout end the job as a start that took too long", async () => {
    t.api.answer(`/files/${sha256}`, "silence");
    const { ended } = t.begin({ files, startup_timeout_s: 10 });
    await t.api.request(`/files/${sha256}`);
    t.clock.advance(10_000);
    await ended;
    const { json } = await t.api.request("/result");
    expect(json).toMatchObject({ status: "timeout", error: { type: "startup_timeout" } });
    expect(t.specs).toEqual([]);
  });

  it("that the API does not have any more end the job", async () => {
    t.api.answer(`/files/${sha256}`, {
      status: 404,
      headers: { [protocolHeader]: protocolVersion },
    });
    await t.begin({ files }).ended;
    const { json } = await t.api.request("/result");
    expect(json["error"]).toMatchObject({
      phase: "startup",
      message: expect.stringContaining("A file of the job could not be fetched") as string,
    });
  });

  it.each(["../a", "/etc/passwd", "a//b", "_args", "data.json", "a\nb", ""])(
    "named %j are refused, whatever the API says",
    async (name) => {
      await t.begin({ files: [{ ...files[0]!, name }] }).ended;
      const { json } = await t.api.request("/result");
      expect(json["error"]).toMatchObject({ type: "config_error", phase: "startup" });
      expect(t.specs).toEqual([]);
    },
  );

  it("above a quarter of the memory limit are refused where they cannot be mounted", async () => {
    t.api.answer(`/files/${sha256}`, { status: 200, body: "tea" });
    const lease = testJob({ files });
    const job_type = { ...lease.job_type, memory_limit: "16b" };
    await t.begin({ files, job_type }).ended;
    const { json } = await t.api.request("/result");
    expect(json["error"]).toMatchObject({
      type: "config_error",
      message: expect.stringContaining("a quarter of its memory limit") as string,
    });
  });
});

describe("a container that is lost", () => {
  const dead = new EngineError("unavailable", "connect ECONNREFUSED");
  const failed = { status: "failed", error: { type: "internal_error", phase: "execution" } };
  const released = (message: string, phase: string) => ({
    error: { type: "internal_error", message, phase },
  });
  const notStarted = released("The container could not be started.", "startup");
  const engineLost = released("The container engine was lost while the code ran.", "execution");
  const motherLost = "The container in which jobs are forked was lost while the code ran.";
  const ofMother = { isHostLost: true } as const;

  it.each<[string, Partial<RunReport>, EngineHealth | Error, object]>([
    ["before the code started hands the lease back", { started: false }, goodEngine, notStarted],
    ["with the engine, before the code started: also", { started: false }, dead, notStarted],
    ["with running code fails the job if the engine works", {}, goodEngine, failed],
    ["with running code and the engine hands the lease back", {}, dead, engineLost],
    ["but not with its mother, fails the job also then", { isHostLost: false }, dead, failed],
    ["with its mother", ofMother, goodEngine, released(motherLost, "execution")],
    ["with its mother and the engine", ofMother, dead, engineLost],
    ["because of memory is the code's fault", { outOfMemory: true }, dead, { status: "oom" }],
  ])("%s: posted once that is known, and the job is not both", async (_what, how, engine, body) => {
    Object.assign(t.deps, { judge: classify });
    const sandbox = createFakeSandbox({ begins: how.started !== false });
    t.start = () => Promise.resolve(sandbox);
    const { ended } = t.begin();
    await sandbox.running;
    t.health = engine;
    sandbox.finish({ ending: "lost", lostReason: "gone", ...how });
    const [posted, other] = "status" in body ? ["/result", "/release"] : ["/release", "/result"];
    expect((await t.api.request(posted)).json).toMatchObject(body);
    const isEngineBlamed = engine === dead && posted === "/release";
    expect(t.deps.engine.breaker().failure_count).toBe(isEngineBlamed ? 1 : 0);
    await ended;
    expect(t.api.count(other)).toBe(0);
  });

  it("because the agent's disk is full is tried once more", async () => {
    const { ended } = t.begin();
    const full = Object.assign(new Error("ENOSPC: no space left on device"), { code: "ENOSPC" });
    (await t.sandbox(0)).fail(full);
    await ended;
    expect((await t.api.request("/release")).json).toMatchObject({
      error: { message: "The agent could not store the files that the code wrote." },
    });
    expect(t.api.count("/result")).toBe(0);
  });

  it("with an error in the agent fails the job too", async () => {
    const { ended } = t.begin();
    (await t.sandbox(0)).fail(new TypeError("not a function"));
    await ended;
    expect((await t.api.request("/result")).json).toMatchObject({
      status: "failed",
      error: { type: "internal_error", message: "The run was lost to a failure of the service." },
    });
  });
});

function takeAll(unsent: ReturnType<typeof createUnsent>): OutputPart[][] {
  const posts: OutputPart[][] = [];
  for (let post = unsent.take(); post; post = unsent.take()) posts.push(post);
  return posts;
}

const bytesOf = ({ data_base64 }: OutputPart): Buffer => Buffer.from(data_base64, "base64");

/** Each byte with its stream, in order. */
const spelled = (parts: OutputPart[]): string[] =>
  parts.flatMap((part) => [...bytesOf(part)].map((byte) => `${part.stream} ${byte}`));

test("what was added comes out in its order and once, whenever it is taken", () => {
  const step = fc.oneof(
    fc.record({
      stream: fc.constantFrom<StreamName>("stdout", "stderr"),
      bytes: fc.uint8Array({ maxLength: 5 }),
    }),
    fc.constant("take" as const),
  );
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      const unsent = createUnsent();
      const added: string[] = [];
      const parts: OutputPart[] = [];
      for (const one of steps) {
        if (one === "take") parts.push(...(unsent.take() ?? []));
        else {
          unsent.add(one.stream, one.bytes);
          added.push(...[...one.bytes].map((byte) => `${one.stream} ${byte}`));
        }
      }
      parts.push(...takeAll(unsent).flat());
      expect(spelled(parts)).toEqual(added);
      expect(unsent.isEmpty()).toBe(true);
      for (const stream of ["stdout", "stderr"] as const) {
        let offset = 0;
        for (const part of parts.filter((one) => one.stream === stream)) {
          expect(part.offset).toBe(offset);
          offset += bytesOf(part).length;
        }
      }
    }),
  );
});

test("a post has at most 256 KiB and 1,000 parts", () => {
  const unsent = createUnsent();
  unsent.add("stdout", new Uint8Array(600 * 1024));
  for (let n = 0; n < 2500; n++) unsent.add(n % 2 ? "stdout" : "stderr", Uint8Array.of(n));
  for (const post of takeAll(unsent)) {
    expect(post.length).toBeLessThanOrEqual(1000);
    const size = post.reduce((sum, part) => sum + bytesOf(part).length, 0);
    expect(size).toBeLessThanOrEqual(256 * 1024);
  }
});

test("code that changes the stream at every byte costs the agent little memory", () => {
  const unsent = createUnsent();
  const byte = Uint8Array.of(1);
  const before = process.memoryUsage().rss;
  for (let n = 0; n < 2_000_000; n++) unsent.add(n % 2 ? "stdout" : "stderr", byte.slice());
  expect(process.memoryUsage().rss - before).toBeLessThan(300 * 1024 * 1024);
  expect(unsent.take()).toHaveLength(1000);
});

it("posts a call at once with what came before it, and asks for answers only while one is missing", async () => {
  const { ended } = t.begin();
  const { sandbox, options } = await t.running();
  const place = (number: number) => ({ number, stdoutAt: 0, stderrAt: 0 });
  const data = { "text/plain": "x" };
  const call = (number: number) => ({ ...place(number), name: "f", arguments: { a: 1 } });
  const asking = (after: number) => `/answers?after=${after}&wait_s=20`;
  const given: unknown[] = [];
  const askedAgain = Promise.withResolvers<unknown>();

  t.api.answer(asking(0), { status: 200, body: { answers: [{ number: 3, error: "no" }] } });
  t.api.answer(asking(1), { status: 200, body: { answers: [{ number: 2, result_json: "1.0" }] } });
  t.api.answer(asking(2), "silence");
  options.onItem?.({ ...place(1), main: false, data });
  options.onCall?.(call(2), (one) => askedAgain.resolve(given.push(one)));
  options.onCall?.(call(3), (one) => given.push(one));
  await askedAgain.promise;
  expect(given).toEqual([{ error: "no" }, { resultJson: "1.0" }]);
  const posts = t.api.received.filter(({ path }) => path.endsWith("/items"));
  const sent = posts.flatMap(({ json }) => (json as { items: { number: number }[] }).items);
  expect(sent).toMatchObject([
    { number: 1, data },
    { number: 2, name: "f", arguments: { a: 1 }, stdout_at: 0, stderr_at: 0 },
    { number: 3 },
  ]);
  expect(t.api.count(asking(2))).toBe(0);

  options.onCall?.(call(4), (one) => given.push(one));
  const { hungUp } = await t.api.request(asking(2));
  sandbox.finish({ items: [{ ...place(1), main: false, data }] });
  await hungUp;
  await ended;
  expect((await t.api.request("/result")).json).not.toHaveProperty("items");
  expect(given).toHaveLength(2);
});
