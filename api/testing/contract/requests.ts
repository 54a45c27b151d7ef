import { createHash } from "node:crypto";
import { expect } from "vitest";
import { ExecutionRecord, SyncResult } from "../../../shared/wire/executions.ts";
import type { LeasedJob } from "../../../shared/wire/leases.ts";
import { limits } from "../../../shared/wire/limits.ts";
import {
  type Api,
  body,
  defaultImage,
  expectFault,
  maxRequestBytes,
  maxTimeoutS,
  on,
  problemOf,
  type Row,
  test,
  working,
} from "./api.ts";

/** A request body as it is sent. */
type Body = string | Uint8Array<ArrayBuffer>;

const paths = ["/execute", "/execute/async"];
/** A list of so many numbers, or members of an object with so many keys, as JSON. */
const many = (count: number): string => `[${Array.from({ length: count }, () => 1).join(",")}]`;
const keys = (count: number): string =>
  Array.from({ length: count }, (_, n) => `"k${n}":"v"`).join(",");
const long = (n: number): string => "x".repeat(n);

/** Texts that pip, a shell or a file system would not treat as a plain package name. */
const notNames = (
  "--index-url=https://x|-e .|-r /etc/passwd|a --no-binary :all:|a @ file:///x|a@https://x/a.whl|" +
  "git+https://github.com/x/y|https://x/a.whl|a; echo|a && b|$(id)|${HOME}|../x|/x|./x|a.whl|" +
  "a.tar.gz|a\nb|a\n--index-url x|a\r|a\\|a\0|a #x|ä|a\ud800| "
).split("|");

/** Fields with an invalid value. The error names the first part of the path. */
const faults: [path: string, value: unknown][] = [
  ["code", undefined],
  ["code", null],
  ["code", ""],
  ["code", 1],
  ["code", ["print(1)"]],
  ["code", "print(1)\0"],
  ["code", "print('\ud800')"],
  ["input_data", null],
  ["input_data", []],
  ["input_data", "{}"],
  ["input_data", 1.5],
  ["timeout", 0],
  ["timeout", -1],
  ["timeout", 1.5],
  ["timeout", "30"],
  ["timeout", null],
  ["timeout", true],
  ["timeout", 86_401],
  ["startup_timeout", 9],
  ["startup_timeout", 601],
  ["startup_timeout", 10.5],
  ["startup_timeout", "60"],
  ["job_type", ""],
  ["job_type", 1],
  ["job_type", null],
  ["job_type", "unknown"],
  ["job_type", "__proto__"],
  ["job_type", "constructor"],
  ["job_type", "default\0"],
  ["job_type", long(129)],
  ["requirements", "numpy"],
  ["requirements.0", [1]],
  ["requirements.0", [""]],
  ["requirements.1", ["numpy", long(257)]],
  ["requirements", Array.from({ length: 101 }, () => "a")],
  ["requirements", Array.from({ length: 10_000 }, () => "a")],
  ["requirements.3", ["numpy", "requests[socks]>=2.31", "a; os_name == 'nt'", "--index-url x"]],
  ["extra", 1],
  ["Code", "print(1)"],
  ["idempotency_key", ""],
  ["idempotency_key", 1],
  ["idempotency_key", null],
  ["idempotency_key", long(256)],
  ["idempotency_key", "a\0"],
  ["idempotency_key", "a\ud800"],
];

async function expectNothingStored(api: Api, run: () => Promise<void>): Promise<void> {
  const before = await api.newest();
  await run();
  expect(await api.newest()).toEqual(before);
}

const show = (value: unknown): string => (JSON.stringify(value) ?? "absent").slice(0, 40);

const malformed: [what: string, body: Body][] = [
  ["nothing", ""],
  ["malformed JSON", '{"code": "print(1)"'],
  ["two documents", '{"code":"1"}{"code":"1"}'],
  ["a comment", '{"code":"1"} // x'],
  ["a trailing comma", '{"code":"1",}'],
  ["NaN", '{"code":"1","input_data":{"a":NaN}}'],
  ["a byte order mark", '\u{feff}{"code":"1"}'],
  ["a list", '[{"code":"1"}]'],
  ["a text", '"print(1)"'],
  ["null", "null"],
  ["a number", "1.0"],
  ["invalid UTF-8", Uint8Array.from([0x7b, 0x22, 0x63, 0x22, 0x3a, 0x22, 0xff, 0x22, 0x7d])],
  ["a surrogate in UTF-8", Uint8Array.from([0x22, 0xed, 0xa0, 0x80, 0x22])],
  ["nesting 513 deep", `{"code":"1","input_data":${'{"a":'.repeat(512)}1${"}".repeat(513)}`],
  ["nesting 20000 deep", `{"code":"1","input_data":${"[".repeat(20_000)}`],
];

export const validationRows: Row[] = [
  ...["/execute", "/execute/batch", "/files?name=a", "/sessions", "/mcp"].map((path) =>
    test(`POST ${path} with a Content-Encoding is 415 that names it, and nothing is stored`, (api) =>
      expectNothingStored(api, async () => {
        const headers = { "Content-Type": "application/json", "Content-Encoding": "gzip" };
        const body = Uint8Array.from([0x1f, 0x8b, 8, 0]);
        const reply = await fetch(api.url + path, { method: "POST", headers, body });
        const { code, detail } = (await reply.json()) as Record<string, string>;
        expect([reply.status, code]).toEqual([415, "unsupported_encoding"]);
        expect(detail).toContain("Content-Encoding: gzip");
      })),
  ),
  ...paths.flatMap((path) =>
    faults.map(([field, value]) =>
      test(`POST ${path} with ${field} = ${show(value)} is 400 at that path`, (api) =>
        expectNothingStored(api, async () => {
          const [name = ""] = field.split(".");
          expectFault(await api.post(path, { code: "print(1)", [name]: value }), field);
        })),
    ),
  ),
  ...notNames.map((text) =>
    test(`hostile 31: requirements with ${show(text)} are 400 at that path, and nothing is stored`, (api) =>
      expectNothingStored(api, async () => {
        for (const path of paths) {
          const reply = await api.post(path, { code: "1", requirements: ["numpy", text] });
          expectFault(reply, "requirements.1");
        }
      })),
  ),
  test("One answer lists all faults of a request", async (api) => {
    const reply = await api.post("/execute/async", {
      code: "",
      timeout: 0,
      startup_timeout: 1,
      x: 1,
    });
    const told = problemOf(reply).errors?.map(({ path }) => path);
    expect(told?.toSorted()).toEqual(["code", "startup_timeout", "timeout", "x"]);
  }),
  ...paths.flatMap((path) =>
    malformed.map(([what, sent]) =>
      test(`POST ${path} with ${what} for a body is 400`, async (api) => {
        const headers = { "Content-Type": "application/json" };
        const reply = await api.send("POST", path, { body: sent, headers });
        expect(reply.status).toBe(400);
      }),
    ),
  ),
  ...on(
    "with a long queue",
    (
      [
        ["/execute/async", `"args":${many(100_000)}`, "args"],
        ["/execute/async", `"args":${many(10_001)}`, "args"],
        ["/execute/async", `"command":${many(10_001)}`, "command"],
        ["/execute/async", `"requirements":${many(101)}`, "requirements"],
        ["/execute/async", `"metadata":{${keys(51)}}`, "metadata"],
        ["/execute/async", `"metadata":{${keys(50_001)}}`, "metadata"],
        ["/execute/async", `"files":${many(101)}`, "files"],
        ["/execute/async", `"tools":${many(101)}`, "tools"],
        ["/execute/async", `"x":{"input_data":${many(100_000)}}`, "x"],
        ["/execute/async", `"input_data":{"a":${many(1_000_000)}}`, "input_data"],
        ["/execute/async", `"input_data":{${keys(100_001)}}`, "input_data"],
        ["/execute/batch", `"jobs":[{},{"args":${many(100_000)}}]`, "jobs.1.args"],
        [
          "/execute/batch",
          `"jobs":[{},{"input_data":{"a":${many(1_000_000)}}}]`,
          "jobs.1.input_data",
        ],
        ["/execute/batch", `"jobs":${many(1001)}`, "jobs"],
      ] as const
    ).map(([path, fields, field]) =>
      test(`POST ${path} with ${fields.length} characters of too many values is 400 at ${field}, with the bound`, async (api) => {
        const reply = await api.post(
          path,
          `{${path === "/execute/async" ? '"code":"1",' : ""}${fields}}`,
        );
        expectFault(reply, field);
        expect(problemOf(reply).errors?.[0]?.message).toMatch(
          /(at most|more than) \d+ (entries|keys)/,
        );
      }),
    ),
  ),
  test("Nesting up to the limit is accepted", async (api) => {
    const sent = `{"code":"1","input_data":${'{"a":'.repeat(510)}{}${"}".repeat(511)}`;
    expect((await api.post("/execute/async", sent)).status).toBe(202);
  }),
  ...[
    "text/plain",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x",
    "application/jsonp",
    "",
  ].map((type) =>
    test(`A body of type ${type || "(none)"} is 400`, async (api) => {
      const body = new Blob(['{"code":"1"}'], { type: "" });
      const headers = type ? { "Content-Type": type } : {};
      const reply = await api.send("POST", "/execute/async", { body, headers });
      expect(reply.status).toBe(400);
      expect(problemOf(reply).detail).toContain("application/json");
    }),
  ),
  ...[
    "application/json",
    "application/json; charset=utf-8",
    "Application/JSON",
    "application/vnd.api+json",
  ].map((type) =>
    test(`A body of type ${type} is read as JSON`, async (api) => {
      const headers = { "Content-Type": type };
      const good = await api.send("POST", "/execute/async", { body: '{"code":"1"}', headers });
      expect(good.status).toBe(202);
      expectFault(await api.send("POST", "/execute/async", { body: "{}", headers }), "code");
    }),
  ),
  test("A timeout above the schema's limit is 400, above the configured limit 422", async (api) => {
    for (const path of paths) {
      expect((await api.post(path, { code: "1", timeout: 86_401 })).status).toBe(400);
      for (const timeout of [maxTimeoutS + 1, 86_400]) {
        const reply = await api.post(path, { code: "1", timeout });
        expect(reply.status).toBe(422);
        expect(problemOf(reply).detail).toContain(String(maxTimeoutS));
      }
    }
    await api.submit({ timeout: maxTimeoutS });
  }),
  test("Missing fields get the contract's defaults", async (api) => {
    await api.submit();
    await api.submit({ job_type: "ml" });
    const agent = api.agent();
    expect(await agent.takeJob()).toMatchObject({
      input_json: "{}",
      timeout_s: 30,
      startup_timeout_s: 60,
      requirements: [],
      job_type: { name: "default", memory_limit: "512m" },
    });
    expect(await agent.takeJob()).toMatchObject({
      timeout_s: 300,
      job_type: { name: "ml", memory_limit: "1g" },
    });
  }),
  test("A timeout may be written as 30.0, because some clients write whole numbers like that", async (api) => {
    expect((await api.post("/execute/async", '{"code":"1","timeout":30.0}')).status).toBe(202);
    expect(await api.agent().takeJob()).toMatchObject({ timeout_s: 30 });
  }),
  ...paths.flatMap((path): Row[] => [
    test(`POST ${path} with a Content-Length over max_request_bytes is 413`, async (api) => {
      const reply = await api.post(path, { code: long(maxRequestBytes) });
      expect(reply.status).toBe(413);
      expect(problemOf(reply).detail).toContain(String(maxRequestBytes));
    }),
    test(`POST ${path} with a streamed body over max_request_bytes is 413`, async (api) => {
      const body = new Blob([JSON.stringify({ code: long(maxRequestBytes) })]).stream();
      const reply = await api.send("POST", path, {
        body,
        headers: { "Content-Type": "application/json" },
      });
      expect(reply.status).toBe(413);
    }),
  ]),
  test("A body of exactly max_request_bytes is accepted, with Content-Length or streaming", async (api) => {
    const empty = JSON.stringify({ code: "" }).length;
    const text = JSON.stringify({ code: long(maxRequestBytes - empty) });
    expect((await api.post("/execute/async", text)).status).toBe(202);
    const reply = await api.send("POST", "/execute/async", {
      body: new Blob([text]).stream(),
      headers: { "Content-Type": "application/json" },
    });
    expect(reply.status).toBe(202);
  }),
];

const numbers =
  '{"one":1.0,"big":12345678901234567890,"minus":-0,"small":1e-400,"huge":1E400,"list":[1.50,{"x":9007199254740993}]}';

async function submitText(api: Api, text: string): Promise<string> {
  const reply = await api.post("/execute/async", text);
  expect(reply.status).toBe(202);
  return (body(reply) as { job_id: string }).job_id;
}

/** The record's text after a run that wrote this to its streams and its result.json. */
async function recordAfter(api: Api, stdout: Uint8Array, output: string | null): Promise<string> {
  const { agent, job_id, lease_id } = await working(api);
  const base64 = btoa(String.fromCharCode(...stdout));
  const reply = await agent.result(lease_id, {
    stdout_base64: base64,
    stderr_base64: base64,
    output_json: output,
  });
  expect(reply.status).toBe(200);
  return (await api.get(`/jobs/${job_id}/result`)).text;
}

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);

export const exactnessRows: Row[] = [
  test("Numbers of input_data reach the code as they were written", async (api) => {
    const id = await submitText(api, `{"code":"1","input_data":${numbers}}`);
    expect((await api.agent().takeJob()).input_json).toBe(numbers);
    expect((await api.get(`/jobs/${id}/artifacts/_input.json`)).text).toBe(numbers);
  }),
  test("Numbers of result.json come back as they were written", async (api) => {
    const record = await recordAfter(api, bytes(""), numbers);
    expect(record).toContain(`"output":${numbers}`);
  }),
  test("result.json can be downloaded, and given to other jobs, byte for byte", async (api) => {
    for (const text of [` ${numbers}\n`, '\u{feff}{"a": 1.0}']) {
      const { job_id } = await api.submit();
      const agent = api.agent();
      const path = `/jobs/${job_id}/artifacts/result.json`;
      expect((await api.get(path)).status).toBe(404);
      await agent.result((await agent.takeJob()).lease_id, { output_json: text });
      const hash = createHash("sha256").update(text).digest("hex");
      // Without the byte order mark, which its hash has.
      expect((await api.get(path)).text).toBe(text.replace("\u{feff}", ""));
      expect((await api.get(path)).headers.get("ETag")).toBe(`"${hash}"`);
      const artifact = { job_id, name: "result.json" };
      await api.submit({ files: [{ name: "before.json", artifact }] });
      const next = await agent.takeJob();
      expect(next.files).toMatchObject([{ name: "before.json", sha256: hash }]);
      await agent.result(next.lease_id);
      const record = await api.get(`/jobs/${job_id}/result`);
      expect(record.text).toContain(`"output":${text.replace("\u{feff}", "")}`);
    }
  }),
  test("Keys like __proto__ are plain data in input and output", async (api) => {
    const keys = '{"__proto__":{"a":1},"constructor":{"prototype":null},"toString":1,"":2}';
    await submitText(api, `{"code":"1","input_data":${keys},"idempotency_key":"proto"}`);
    const again = await api.post(
      "/execute/async",
      '{"code":"1","input_data":{"constructor":{"prototype":null},"toString":1,"":2},"idempotency_key":"proto"}',
    );
    expect(again.status).toBe(409);
    const agent = api.agent();
    const { lease_id, input_json } = await agent.takeJob();
    expect(input_json).toBe(keys);
    await agent.result(lease_id);
    expect(await recordAfter(api, bytes(""), keys)).toContain(`"output":${keys}`);
  }),
  test("A request with the field __proto__ is 400", async (api) => {
    const reply = await api.post("/execute/async", '{"code":"1","__proto__":{"timeout":1}}');
    expect(reply.status).toBe(400);
  }),
  test("Code arrives as it was sent: CR LF, BOM, tabs, any language", async (api) => {
    const code = "\u{feff}# -*- coding: latin-1 -*-\r\nprint('é 日本 😀\t\u2028')\r\n";
    await api.submit({ code });
    expect((await api.agent().takeJob()).code).toBe(code);
  }),
  test("Text of input_data arrives as it was sent: NUL, surrogates, any language", async (api) => {
    const input = '{"nul":"a\\u0000b","lone":"\\ud800","emoji":"😀","line":"\u2028"}';
    await submitText(api, `{"code":"1","input_data":${input}}`);
    const { input_json } = await api.agent().takeJob();
    expect(JSON.parse(input_json)).toEqual(JSON.parse(input));
  }),
  ...(
    [
      ["NUL", bytes("a\0b\0"), "a\0b\0"],
      ["ANSI sequences", bytes("\u001b[31mred\u001b[0m\u0007"), "\u001b[31mred\u001b[0m\u0007"],
      ["invalid UTF-8", Uint8Array.from([0x61, 0xff, 0xc3, 0x28]), "a\u{fffd}\u{fffd}("],
      ["a lone surrogate", Uint8Array.from([0xed, 0xa0, 0x80]), "\u{fffd}\u{fffd}\u{fffd}"],
      ["a byte order mark", bytes("\u{feff}a"), "\u{feff}a"],
      ["CR LF", bytes("a\r\nb\r"), "a\r\nb\r"],
    ] as [string, Uint8Array, string][]
  ).map(([what, written, shown]) =>
    test(`A stream may hold ${what}`, async (api) => {
      const record = JSON.parse(await recordAfter(api, written, null)) as Record<string, unknown>;
      expect([record["stdout"], record["stderr"]]).toEqual([shown, shown]);
    }),
  ),
  ...[
    "{",
    "[1]",
    '"text"',
    "null",
    "1",
    '{"a":NaN}',
    `{"a":${"[".repeat(600)}${"]".repeat(600)}}`,
    `{"too many":[${"{},".repeat(limits.resultJsonMaxValues)}{}]}`,
  ].map((output) =>
    test(`A result whose output is ${output.slice(0, 20)} is refused, and the job goes on`, async (api) => {
      const { agent, job_id, lease_id } = await working(api);
      expect((await agent.result(lease_id, { output_json: output })).status).toBe(400);
      expect((await api.job(job_id)).status).toBe("running");
      expect((await agent.result(lease_id)).status).toBe(200);
    }),
  ),
];

const stdin = "\u{feff}tea\r\n\0\u00e4\u{1f600}\n";
const args = ["--verbose", "", "\u00e4 b\n\"'", "\u{1f600}"];
const given = { stdin, args };
const mebibyte = 1024 ** 2;

const inputsOf = ({ stdin, args }: Pick<LeasedJob, "stdin" | "args">) => ({ stdin, args });

async function taken(api: Api, id: string): Promise<object> {
  const job = await api.agent().takeJob();
  expect(job.execution_id).toBe(id);
  return inputsOf(job);
}

const manyTexts = (count: number): string[] => Array.from({ length: count }, () => "");

async function refuse(api: Api, { fields, path }: { fields: object; path: string }): Promise<void> {
  const stored = await api.newest();
  for (const where of ["/execute", "/execute/async"])
    expectFault(await api.post(where, { code: "print(1)", ...fields }), path);
  const jobs = [{ code: "print(1)" }, { code: "print(1)", ...fields }];
  expectFault(await api.post("/execute/batch", { jobs, atomic: true }), `jobs.1.${path}`);
  expect(await api.newest()).toEqual(stored);
}

export const inputRows: Row[] = [
  test("The agent and the full record get stdin and args as they were sent", async (api) => {
    const { job_id } = await api.submit(given);
    expect(await taken(api, job_id)).toEqual(given);
    expect(await api.record(job_id)).toMatchObject(given);
    expect(await api.record(job_id, "")).not.toHaveProperty("stdin");
    const listed = await api.get("/executions?fields=stdin,args&limit=1");
    expect(body(listed)).toMatchObject({ items: [{ execution_id: job_id, ...given }] });
  }),
  test("POST /execute takes stdin and args", async (api) => {
    const agent = await api.connected();
    const reply = api.post("/execute", { code: "print(1)", ...given });
    const job = await agent.takeJob();
    expect(inputsOf(job)).toEqual(given);
    await agent.result(job.lease_id);
    expect((await reply).status).toBe(200);
  }),
  test("Each job of a batch has its own stdin and args", async (api) => {
    const jobs = [{ stdin }, {}, { args }, given].map((one) => ({ code: "print(1)", ...one }));
    expect((await api.post("/execute/batch", { jobs })).status).toBe(202);
    const agent = api.agent();
    const told = [];
    for (const _ of jobs) told.push(inputsOf(await agent.takeJob()));
    expect(told).toEqual(jobs.map(inputsOf));
  }),
  ...["rerun", "fork"].map((what) =>
    test(`A ${what} has the stdin and args of its parent, unless it brings its own`, async (api) => {
      const parent = await api.submit(given);
      await api.agent().takeJob();
      for (const [own, expected] of [
        [{}, given],
        [{ stdin: "other" }, { ...given, stdin: "other" }],
        [
          { stdin: "", args: [] },
          { stdin: undefined, args: undefined },
        ],
      ]) {
        const fields = { ...(what === "fork" && { code: "print(2)" }), ...own };
        const reply = await api.post(`/jobs/${parent.job_id}/${what}`, fields);
        expect(reply.status).toBe(202);
        const { job_id } = body(reply) as { job_id: string };
        expect(await taken(api, job_id)).toEqual(expected);
      }
    }),
  ),
  test("A record has stdin and args only where they were given; empty ones are none", async (api) => {
    const key = { idempotency_key: crypto.randomUUID() };
    const plain = await api.submit(key);
    const empty = await api.submit({ ...key, stdin: "", args: [] });
    expect(empty.job_id).toBe(plain.job_id);
    const record = await api.record(plain.job_id);
    expect(Object.keys(record).filter((name) => ["stdin", "args"].includes(name))).toEqual([]);
  }),
  test("A job that has ended without a result keeps stdin and args in its record", async (api) => {
    const { job_id } = await api.submit({ ...given, max_attempts: 1 });
    const agent = api.agent();
    await agent.takeJob();
    const died = JSON.stringify({ agent_id: agent.id, crashed: true });
    expect((await agent.send("POST", "/leave", died)).status).toBe(200);
    const reply = await api.get(`/jobs/${job_id}/result?wait=true&timeout=60&view=full`);
    expect(ExecutionRecord.parse(body(reply))).toMatchObject({ status: "failed", ...given });
  }),
  ...[
    { fields: { args: ["ok", "a\0b"] }, path: "args.1" },
    { fields: { args: ["\ud800"] }, path: "args.0" },
    { fields: { args: [1] }, path: "args.0" },
    { fields: { args: "-v" }, path: "args" },
    { fields: { stdin: "a\udc00" }, path: "stdin" },
    { fields: { stdin: 5 }, path: "stdin" },
  ].map(({ fields, path }) =>
    test(`Inputs like ${JSON.stringify(fields)} are 400 with their path`, (api) =>
      refuse(api, { fields, path })),
  ),
  // Their requests are larger than most servers of the table allow.
  ...on("with a long queue", [
    ...[
      { what: "an argument above 128 KiB", args: ["x".repeat(128 * 1024)] },
      { what: "more arguments than 128 KiB hold", args: manyTexts(128 * 1024 + 1) },
    ].map(({ what, args }) =>
      test(`${what} is 400`, (api) => refuse(api, { fields: { args }, path: "args" })),
    ),
    test("stdin may be as large as a request, and args 128 KiB", async (api) => {
      const most = { stdin: "x".repeat(3 * mebibyte), args: ["y".repeat(128 * 1024 - 1)] };
      const { job_id } = await api.submit(most);
      expect(await taken(api, job_id)).toEqual(most);
    }),
  ]),
  test("An agent that does not know stdin and args gets other jobs only; a job that needs it waits or is refused, and says so", async (api) => {
    const older = api.agent();
    const accepts = { job_types: null, builds: true };
    const agent = { ...older.status().agent, accepts };
    const { job_id } = await api.submit(given);
    const { job_id: plain } = await api.submit();
    const { jobs } = await older.poll({ agent });
    expect(jobs.map((job) => job.execution_id)).toEqual([plain]);
    const why = "No connected agent knows stdin, args and files";
    expect((await api.job(job_id)).message).toContain(why);
    const refused = await api.post("/execute", { code: "print(1)", ...given });
    expect([refused.status, problemOf(refused).detail]).toEqual([
      503,
      expect.stringContaining(why),
    ]);
    expect(await taken(api, job_id)).toEqual(given);
  }),
];

const cpp = { language: "cpp", compile_timeout: 20 };
const leasedCpp = {
  file: "main.cpp",
  compile: ["g++", "-std=c++17", "-O2", "/code/main.cpp", "-o", "/tmp/a.out"],
  compile_timeout_s: 20,
  run: ["/tmp/a.out"],
};
const command = ["bash", "-e", "{file}"];

async function programOf(api: Api, id: string): Promise<unknown> {
  const job = await api.agent().takeJob();
  expect(job.execution_id).toBe(id);
  return job.program;
}

export const programRows: Row[] = [
  test("`language` becomes the program that the agent runs; `{file}` in a command is the code's path; python is no program", async (api) => {
    for (const [fields, expected] of [
      [cpp, leasedCpp],
      [
        { command },
        { file: "main", compile: [], compile_timeout_s: 10, run: ["bash", "-e", "/code/main"] },
      ],
      [
        { command: ["./a"], compile_command: ["cc", "{file}"], compile_timeout: 7 },
        { file: "main", compile: ["cc", "/code/main"], compile_timeout_s: 7, run: ["./a"] },
      ],
      [{ language: "python" }, undefined],
    ] as const) {
      const { job_id } = await api.submit(fields);
      expect(await programOf(api, job_id)).toEqual(expected);
    }
  }),
  test("The full record has language, command, compile_command and compile_timeout as they were sent; Python's has none", async (api) => {
    for (const fields of [cpp, { command }, { command, compile_command: ["cc"] }]) {
      const { job_id } = await api.submit(fields);
      expect(await api.record(job_id)).toMatchObject(fields);
      expect(await api.record(job_id, "")).not.toHaveProperty("language");
      const names = Object.keys(fields).join();
      const listed = await api.get(`/executions?fields=${names}&limit=1`);
      expect(body(listed)).toMatchObject({ items: [{ execution_id: job_id, ...fields }] });
    }
    const { job_id } = await api.submit({ language: "python" });
    expect(await api.record(job_id)).not.toHaveProperty("language");
  }),
  test("Each job of a batch has its own language", async (api) => {
    const jobs = [cpp, {}, { command }].map((one) => ({ code: "x", ...one }));
    expect((await api.post("/execute/batch", { jobs })).status).toBe(202);
    const agent = api.agent();
    const files = [];
    for (const _ of jobs) files.push((await agent.takeJob()).program?.file);
    expect(files).toEqual(["main.cpp", undefined, "main"]);
  }),
  ...["rerun", "fork"].map((what) =>
    test(`A ${what} has the language of its parent`, async (api) => {
      const parent = await api.submit(cpp);
      await api.agent().takeJob();
      const fields = what === "fork" ? { code: "y" } : {};
      const reply = await api.post(`/jobs/${parent.job_id}/${what}`, fields);
      expect(await programOf(api, (body(reply) as { job_id: string }).job_id)).toEqual(leasedCpp);
    }),
  ),
  test("The same idempotency key with another language is 409, with Python by name the same job", async (api) => {
    const key = { idempotency_key: crypto.randomUUID() };
    const first = await api.submit(key);
    expect((await api.submit({ ...key, language: "python" })).job_id).toBe(first.job_id);
    const other = await api.post("/execute/async", { code: "print(1)", ...key, language: "bash" });
    expect(other.status).toBe(409);
  }),
  test("A record and the answer of POST /execute say how the compiler ended", async (api) => {
    const agent = await api.connected();
    const reply = api.post("/execute", { code: "x", ...cpp });
    const job = await agent.takeJob();
    const compile = { exit_code: 1, stdout: "", stderr: "main.cpp:1: no", ms: 31 };
    const message = "main.cpp:1: no";
    await agent.result(job.lease_id, {
      status: "failed",
      exit_code: null,
      error: { type: "compile_error", message, phase: "execution" },
      compile,
    });
    const answer = SyncResult.parse(body(await reply));
    expect(answer).toMatchObject({ success: false, compile, error: { type: "compile_error" } });
    const { body: record } = { body: await api.record(answer.job_id, "") };
    expect(ExecutionRecord.parse(record)).toMatchObject({ compile, exit_code: null });
  }),
  test("A language that the job type does not have is 422 with those that it has", async (api) => {
    const stored = await api.newest();
    const reply = await api.post("/execute", { code: "x", language: "javascrpt" });
    expect(reply.status).toBe(422);
    expect(problemOf(reply)).toMatchObject({
      code: "language_unavailable",
      detail: expect.stringContaining('did you mean "javascript"?') as string,
      errors: [{ path: "language", message: expect.stringContaining("bash, c, cpp") as string }],
    });
    expect(await api.newest()).toEqual(stored);
  }),
  test("Once an agent has looked into the image, the job type shows the languages that are there, and the others are 422", async (api) => {
    const agent = api.agent();
    const { agent: identity } = agent.status();
    const languages = { [defaultImage]: { bash: "5.2.37" } };
    const accepts = { ...identity.accepts, languages };
    await agent.poll({ agent: { ...identity, accepts } });
    const shown = body(await api.get("/job-types/default"));
    expect(shown).toMatchObject({
      languages: [{ name: "python" }, { name: "bash", version: "5.2.37" }],
    });
    const reply = await api.post("/execute/async", { code: "x", language: "cpp" });
    expect([reply.status, problemOf(reply)]).toMatchObject([
      422,
      {
        code: "language_unavailable",
        errors: [{ path: "language", message: "must be one of: python, bash" }],
      },
    ]);
    await api.submit({ language: "bash" });
    await agent.takeJob();
  }),
  ...[
    { fields: { language: "bash", command }, path: "command" },
    { fields: { language: "bash", requirements: ["six"] }, path: "requirements" },
    { fields: { language: "C++" }, path: "language" },
    { fields: { language: "" }, path: "language" },
    { fields: { command: [] }, path: "command" },
    { fields: { command: "ls" }, path: "command" },
    { fields: { command: ["a\0b"] }, path: "command.0" },
    { fields: { compile_command: ["cc"] }, path: "compile_command" },
    { fields: { language: "c", compile_command: ["cc"] }, path: "compile_command" },
    { fields: { language: "c", compile_timeout: 0 }, path: "compile_timeout" },
    { fields: { language: "c", compile_timeout: 301 }, path: "compile_timeout" },
  ].map(({ fields, path }) =>
    test(`A program like ${JSON.stringify(fields)} is 400 with its path`, async (api) => {
      for (const where of ["/execute", "/execute/async"])
        expectFault(await api.post(where, { code: "x", ...fields }), path);
    }),
  ),
];
