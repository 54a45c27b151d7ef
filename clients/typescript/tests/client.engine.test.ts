import { execFile } from "node:child_process";
import { rmSync, writeFileSync } from "node:fs";
import { resolve } from "node:path";
import { promisify } from "node:util";
import { beforeAll, describe, expect, test } from "vitest";
import { needsThroughout } from "../../../scripts/testing/needs.ts";
import { startCuttingProxy } from "../../../scripts/testing/proxies.ts";
import { service, useTestService } from "../../../scripts/testing/test-service.ts";
import { examplesOf, pythonClient } from "../../testing/programs.ts";
import { allOf } from "../../testing/services.ts";
import {
  type Airlock,
  connect,
  ForbiddenError,
  type JobEvent,
  NotFoundError,
  type OwnTool,
  SessionEndedError,
} from "../src/index.ts";

const key = "key-0123456789abcdef";

describe("jobs", () => {
  useTestService({ key });

  let airlock: Airlock;
  beforeAll(() => {
    airlock = connect({ url: service.url, key });
  });

  test("run answers with the full record of what the code did, and its files can be read", async () => {
    const record = await airlock.run({
      code: "import json; d = json.load(open('/input/data.json')); print(d['n'] * 7); open('/output/ä b.txt', 'w').write('file')",
      input_data: { n: 6 },
    });
    expect(record).toMatchObject({ status: "succeeded", stdout: "42\n", exit_code: 0 });
    const [file] = await airlock.artifacts.list(record.execution_id);
    expect(file).toMatchObject({ name: "ä b.txt", size_bytes: 4 });
    const bytes = await airlock.artifacts.get(record.execution_id, "ä b.txt");
    expect(new TextDecoder().decode(bytes)).toBe("file");
    const answer = await airlock.artifacts.open(record.execution_id, "ä b.txt");
    expect(await answer.text()).toBe("file");
  });

  test("code that fails is a record, not an error", async () => {
    const record = await airlock.run("raise ValueError('bad')");
    expect(record).toMatchObject({ status: "failed", error: { type: "value_error" } });
  });

  test("if the signal of a run aborts, the job is cancelled", async () => {
    const leaving = new AbortController();
    const running = airlock.run(
      { code: "import time; time.sleep(600)", metadata: { test: "abort" }, startup_timeout: 600 },
      { signal: leaving.signal },
    );
    running.catch(() => {});
    let id: string | undefined;
    while (id === undefined) {
      const page = await airlock.api.listExecutions({
        metadata: ["test:abort"],
        status: ["running"],
      });
      id = page.items[0]?.execution_id;
    }
    leaving.abort(new Error("gone"));
    await expect(running).rejects.toThrow("gone");
    expect(await airlock.wait(id)).toMatchObject({ status: "cancelled" });
  });

  test("run gives the output as it happens", async () => {
    const told = { stdout: "", stderr: "" };
    const record = await airlock.run(
      "import sys\nfor n in range(3): print(n, flush=True); print('e', n, file=sys.stderr, flush=True)",
      { onStdout: (text) => (told.stdout += text), onStderr: (text) => (told.stderr += text) },
    );
    expect(told).toEqual({ stdout: "0\n1\n2\n", stderr: "e 0\ne 1\ne 2\n" });
    expect(record).toMatchObject({ status: "succeeded", ...told });
  });

  test("a job runs again, and new code runs on its input", async () => {
    const code = "print(open('/input/data.json').read())";
    const { execution_id: id } = await airlock.run({ code, input_data: { a: 1 } });
    const [again, other] = await Promise.all([
      airlock.rerun(id, { metadata: { test: "again" } }),
      airlock.fork(id, "import json; print(json.load(open('/input/data.json'))['a'] + 1)"),
    ]);
    expect(await airlock.wait(other.job_id)).toMatchObject({ stdout: "2\n", relationship: "fork" });
    const record = await airlock.wait(again.job_id);
    expect(JSON.parse(record.stdout)).toEqual({ a: 1 });
    expect(await airlock.get(again.job_id)).toEqual(record);
  });

  test("a job that failed is a dead letter until it is removed", async () => {
    const { job_id } = await airlock.submit("{}['x']");
    await airlock.wait(job_id);
    const found = await allOf(airlock.deadLetters.list({ error_type: "key_error" }));
    expect(found).toMatchObject([{ job_id }]);
    expect(await airlock.deadLetters.stats()).toMatchObject({ by_error_type: { key_error: 1 } });
    await airlock.deadLetters.delete(found[0]!.id);
    expect(await allOf(airlock.deadLetters.list({ error_type: "key_error" }))).toEqual([]);
  });

  test("a batch is queued in one request, and its jobs are waited for by their ids", async () => {
    const batch = ["print(1)", { code: "print(2)" }, { code: "" }];
    const { jobs, batch_id } = await airlock.batch(batch);
    const [first, second, third] = jobs.map((job) => ("code" in job ? job.code : job.job_id));
    expect(third).toBe("invalid_request");
    expect(await airlock.wait(first!)).toMatchObject({ stdout: "1\n" });
    expect(await airlock.wait(second!)).toMatchObject({ stdout: "2\n" });
    expect(await airlock.batches.get(batch_id)).toMatchObject({ finished: true, total: 2 });
  });

  test("a file that was uploaded can be listed, read and removed", async () => {
    const { file_id } = await airlock.files.upload("a.csv", "n\n42\n");
    expect(new TextDecoder().decode(await airlock.files.get(file_id))).toBe("n\n42\n");
    expect(await airlock.files.list()).toEqual([expect.objectContaining({ file_id })]);
    await airlock.files.delete(file_id);
    await expect(airlock.files.get(file_id)).rejects.toThrow(NotFoundError);
  });

  test.each([
    ["README", "clients/typescript/README.md", 7],
    ["guide to tools", "docs/guides/tools.md", 1],
  ])("the examples of the %s print what they say", async (_what, page, count) => {
    const { program, prints } = examplesOf(page, "ts", { url: service.url, key });
    expect(prints).toHaveLength(count);
    const file = resolve("clients/typescript/tests/.readme-example.ts");
    writeFileSync(file, program.replaceAll('"airlock-exec"', '"../src/index.ts"'));
    try {
      const { stdout } = await promisify(execFile)("node", ["--import", "tsx", file]);
      expect(stdout.replace("42\n\n", "42\n")).toBe(`${prints.join("\n")}\n`);
    } finally {
      rmSync(file);
    }
  });
});

describe("events", () => {
  needsThroughout("python3");

  useTestService();

  const code = `import sys, time
for n in range(20):
    print("zeile ü", n, flush=True)
    print("err", n, file=sys.stderr, flush=True)
    time.sleep(0.05)`;
  const lines = (prefix: string) =>
    Array.from({ length: 20 }, (_, n) => `${prefix} ${n}\n`).join("");

  type Told = { event: string; data: { text?: string; status?: string } };
  const textOf = (events: readonly Told[], name: string) =>
    events.map(({ event, data }) => (event === name ? data.text : "")).join("");

  function expectWhole(events: readonly Told[]): void {
    expect(textOf(events, "stdout")).toBe(lines("zeile ü"));
    expect(textOf(events, "stderr")).toBe(lines("err"));
    expect(events.at(-1)).toMatchObject({ event: "end", data: { status: "succeeded" } });
  }

  test("a stream of a running job brings its whole output once, over connections that break", async () => {
    await using proxy = await startCuttingProxy(service.url);
    const airlock = connect({ url: proxy.url });
    const { job_id } = await airlock.submit({ code, startup_timeout: 600 });
    // Every answer is longer: its head and the end of the job are.
    proxy.cutNext(...[200, 700, 900, 1_000, 1_000].map((answer) => ({ answer })));
    const events: JobEvent[] = [];
    for await (const event of airlock.stream(job_id)) events.push(event);
    expectWhole(events as Told[]);
    expect(proxy.cuts()).toBe(5);

    // Again, of the job that has ended.
    const python = `print(json.dumps(list(airlock.connect(sys.argv[1]).stream(sys.argv[2]))))`;
    proxy.cutNext(...[300, 900, 1_000].map((answer) => ({ answer })));
    expectWhole(await pythonClient().run<Told[]>(python, proxy.url, job_id));
    expect(proxy.cuts()).toBe(8);
  });
});

describe("tools", () => {
  const operator = "operator-0123456789abcdef";
  useTestService({ key, api: { AIRLOCK_OPERATOR_KEYS: operator } });

  let airlock: Airlock;
  beforeAll(() => {
    airlock = connect({ url: service.url, key });
  });

  const price: OwnTool = {
    name: "price",
    description: "The price of an item.",
    parameters: { properties: { item: { type: "string" } }, required: ["item"] },
    run: ({ item }: { item: string }) => {
      if (item !== "tea") throw new RangeError(`no ${item} \ud800`);
      return Promise.resolve(380);
    },
  };

  test("the code calls functions, and gets results and errors", async () => {
    const others: OwnTool[] = [
      { name: "nothing", run: () => undefined },
      { name: "function_", run: () => price.run },
      { name: "infinite", run: () => ({ a: Infinity }) },
      { name: "large", run: () => "x".repeat(2_000_000) },
    ];
    const code = `
print(price.__doc__, price("tea"), nothing())
for failing in (lambda: price("gold"), function_, infinite, large):
    try: failing()
    except ToolError as error: print(error)`;
    const shown: string[] = [];
    const record = await airlock.run(code, {
      tools: [price, ...others],
      onStdout: (text) => shown.push(text),
    });
    expect(record).toMatchObject({ status: "succeeded", error: null });
    expect(record.stdout.split("\n")).toEqual([
      "The price of an item. 380 None",
      "RangeError: no gold \ufffd",
      "The result is no JSON: it is a function.",
      "The result is no JSON: a is Infinity, which JSON cannot carry: send null or text.",
      "The result is larger than an answer may be.",
      "",
    ]);
    expect(shown.join("")).toBe(record.stdout);
    const { run: _, ...described } = price;
    expect(record.tools?.[0]).toEqual(described);
  });

  test("values that the code shows come as it shows them", async () => {
    const shown: [text: string | undefined, isMain: boolean][] = [];
    const record = await airlock.run("display(1)\nprint(seen())\n2", {
      tools: [{ name: "seen", run: () => shown.length }],
      onResult: ({ data, main }) => shown.push([data["text/plain"], main]),
    });
    expect(record.stdout).toBe("1\n");
    expect(shown).toEqual([
      ["1", false],
      ["2", true],
    ]);
  });

  test("all calls that wait are answered at once", async () => {
    const meeting = Promise.withResolvers<void>();
    let waiting = 0;
    const meet: OwnTool = {
      name: "meet",
      awaitable: true,
      run: async () => {
        if (++waiting === 10) meeting.resolve();
        await meeting.promise;
        return waiting;
      },
    };
    const code = "import asyncio\nsum(await asyncio.gather(*[meet() for _ in range(10)]))";
    const record = await airlock.run(code, { tools: [meet] });
    expect(record.results?.[0]?.data).toEqual({ "text/plain": "100" });
  });

  test("wait answers the calls of a job that another program has submitted", async () => {
    const { job_id } = await airlock.submit({
      code: "print(price('tea'))",
      tools: [{ name: "price", parameters: price.parameters! }],
    });
    const record = await airlock.wait(job_id, { tools: [price] });
    expect(record.stdout).toBe("380\n");
  });

  test("a key that may not answer is an error, and not a wait until the time is over", async () => {
    const { keys } = connect({ url: service.url, key: operator });
    const reader = await keys.create({ name: "reader", scopes: ["read"] });
    const { job_id } = await airlock.submit({ code: "f()", tools: [{ name: "f" }] });
    const only = connect({ url: service.url, key: reader.key });
    const waiting = only.wait(job_id, { tools: [{ name: "f", run: () => 1 }] });
    await expect(waiting).rejects.toThrow(ForbiddenError);
    await airlock.cancel(job_id);
  });
});

describe("sessions", () => {
  useTestService({ key });

  let airlock: Airlock;
  beforeAll(() => {
    airlock = connect({ url: service.url, key });
  });

  const text = (bytes: Uint8Array): string => new TextDecoder().decode(bytes);

  test("a session remembers, shows values, gives output as it happens, and ends with its block", async () => {
    let id: string;
    {
      await using session = await airlock.sessions.create({ metadata: { test: "remembers" } });
      ({ id } = session);
      let told = "";
      await session.run("x = 41");
      const record = await session.run("print('hello'); x + 1", {
        onStdout: (part) => (told += part),
      });
      expect(record).toMatchObject({ session_id: id, call: 2, stdout: "hello\n" });
      expect(record.results?.[0]?.data["text/plain"]).toBe("42");
      expect(told).toBe("hello\n");
      const failed = await session.run({ code: "1 / 0", timeout: 5 });
      expect(failed).toMatchObject({ status: "failed", error: { type: "division_error" } });
      expect((await session.run("x")).results?.[0]?.data["text/plain"]).toBe("41");
      expect(await session.info()).toMatchObject({ status: "ready", calls: 4 });
      const ready = await allOf(airlock.sessions.list({ status: "ready", limit: 5 }));
      expect(ready.map(({ session_id }) => session_id)).toEqual([id]);
    }
    const late: unknown = await airlock.sessions
      .attach(id)
      .run("x")
      .catch((error: unknown) => error);
    expect(late).toBeInstanceOf(SessionEndedError);
    expect(late).toMatchObject({ problem: { reason: "deleted", session_id: id } });
    expect(await airlock.sessions.get(id)).toMatchObject({ status: "ended", reason: "deleted" });
  });

  test("files of a session are written, read, listed and deleted", async () => {
    await using session = await airlock.sessions.create();
    await session.files.write("a b.txt", "ä");
    await session.files.write("sub/bytes", new Uint8Array([0, 255]));
    await session.run("open('made', 'w').write(open('a b.txt').read() * 2)");
    expect(text(await session.files.read("made"))).toBe("ää");
    expect(await session.files.read("sub/bytes")).toEqual(new Uint8Array([0, 255]));
    expect(await (await session.files.open("made")).text()).toBe("ää");
    await session.files.delete("a b.txt");
    const names = (await session.files.list()).map(({ path, type }) => [path, type]);
    expect(names).toEqual([
      ["made", "file"],
      ["sub", "folder"],
    ]);
    expect((await session.files.list("sub")).map(({ path }) => path)).toEqual(["sub/bytes"]);
    await expect(session.files.read("a b.txt")).rejects.toThrow(NotFoundError);
  });

  test("an aborted call is interrupted and keeps variables; a restart forgets them; contexts have their own", async () => {
    await using session = await airlock.sessions.create();
    expect(await session.interrupt()).toEqual({ job_id: null });
    await session.run("x = 1");
    const leaving = new AbortController();
    const running = session.run("print('on', flush=True)\nwhile True: pass", {
      signal: leaving.signal,
      onStdout: () => leaving.abort(new Error("gone")),
    });
    await expect(running).rejects.toThrow("gone");
    const { context_id: context } = await session.contexts.create();
    await session.run({ code: "x = 2", context });
    const value = async (fields = {}) =>
      (await session.run({ code: "x", ...fields })).results?.[0]?.data["text/plain"];
    expect([await value(), await value({ context })]).toEqual(["1", "2"]);
    const contexts = await session.contexts.list();
    expect(contexts.map(({ context_id }) => context_id)).toEqual(["default", context]);
    expect(await session.restart()).toMatchObject({ status: "succeeded" });
    expect(await session.run("x")).toMatchObject({ error: { type: "name_error" } });
    expect(await value({ context })).toBe("2");
    expect(await session.run({ command: ["echo", "program"] })).toMatchObject({
      stdout: "program\n",
    });
    expect(await session.update({ idle_timeout: null })).toMatchObject({ idle_timeout: null });
  });

  test("a call calls functions of this program; the next one has their names no more", async () => {
    await using session = await airlock.sessions.create();
    const double: OwnTool = {
      name: "double",
      parameters: { properties: { n: {} }, required: ["n"] },
      run: ({ n }: { n: number }) => 2 * n,
    };
    const record = await session.run("x = double(double(double(5)))\nx", { tools: [double] });
    expect(record.results?.[0]?.data["text/plain"]).toBe("40");
    const [only, ...others] = await allOf(airlock.list({ session_id: session.id }));
    expect([only?.execution_id, others]).toEqual([record.execution_id, []]);
    const { run: _, ...described } = double;
    expect(record.tools).toEqual([described]);
    expect(await session.run("double(1)")).toMatchObject({ error: { type: "name_error" } });
    const next = await session.run({ code: "double(x)", timeout: 5 }, { tools: [double] });
    expect(next.results?.[0]?.data["text/plain"]).toBe("80");
  });
});
