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
  nobody,
  on,
  problemOf,
  type Row,
  test,
  working,
} from "./api.ts";
import { asked as withTools } from "./tools.ts";

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

const command = ["bash", "-e", "{file}"];

/** Where a request has a fault, the value of the field that the path begins with, and fields beside it. */
const faults: [path: string, value: unknown, more?: object][] = [
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
  ["args.1", ["ok", "a\0b"]],
  ["args.0", ["\ud800"]],
  ["args.0", [1]],
  ["args", "-v"],
  ["stdin", "a\udc00"],
  ["stdin", 5],
  ["language", "C++"],
  ["language", ""],
  ["command", []],
  ["command", "ls"],
  ["command.0", ["a\0b"]],
  ["command", command, { language: "bash" }],
  ["requirements", ["six"], { language: "bash" }],
  ["results", true, { language: "bash" }],
  ["compile_command", ["cc"]],
  ["compile_command", ["cc"], { language: "c" }],
  ["compile_timeout", 0, { language: "c" }],
  ["compile_timeout", 301, { language: "c" }],
  ["metadata", Object.fromEntries(Array.from({ length: 51 }, (_, n) => [`k${n}`, ""]))],
  ["metadata", ["a"]],
  ["metadata.a", { a: 1 }],
  ["metadata.a", { a: long(513) }],
  ["metadata.a", { a: "\0" }],
  ["metadata.a:b", { "a:b": "" }],
  ["metadata.", { "": "" }],
  ["run_at", "tomorrow"],
  ["run_at", "2026-11-22"],
  ["queue_timeout", 0],
  ["queue_timeout", 1.5],
  ["queue_timeout", 2_592_001],
  ["max_attempts", 0],
  ["max_attempts", 3],
];

/** Queries of lists and waits with a wrong value. */
const badQueries: Record<string, string> = {
  "/jobs/x/result": "wait=maybe timeout=-1 timeout=x timeout=1.5 timeout=86401 view=half",
  "/executions":
    "limit=0 limit=1001 limit=-1 limit=x limit= limit=1.5 limit=1&limit=2 offset=-1 offset=x " +
    "offset=1e999 status=pending status= status=failed&status= error= view=short before=x",
  "/dlq":
    "limit=0 limit=1001 limit=x limit=1.0 limit=01 limit=%2B1 limit= offset=-1 offset=1e1 " +
    "before=1e1 before=x error_type=none error_type=",
  "/files": "limit=0 before=x",
  "/sessions": "status=busy",
  "/webhooks/deliveries": "status=gone before=x limit=0",
  "/webhooks/events": "after=x after=-1 wait=21 limit=0",
  "/pool/history": "hours=49",
};

/** Paths with a name or an id that nothing has. */
const nowhere: [method: string, ...paths: string[]][] = [
  ...[nobody, "not-an-id", "%00", "..", "1", "%27%3B%20--", "%F0%9F%92%A9"].flatMap(
    (id): [string, ...string[]][] => [
      ["GET", `/jobs/${id}`, `/jobs/${id}/result`, `/executions/${id}`],
      ["POST", `/jobs/${id}/cancel`],
    ],
  ),
  ...["0", "-1", "1.5", "x", "1e3", "99999999999999999999", "%00"].map((id): [string, string] => [
    "DELETE",
    `/dlq/${id}`,
  ]),
  ...["999999999", "0", "a"].map((id): [string, string] => [
    "POST",
    `/webhooks/deliveries/${id}/resend`,
  ]),
  ["GET", ...["events", "logs", "artifacts"].map((what) => `/jobs/${nobody}/${what}`)],
  ["GET", `/batches/${nobody}`, "/batches/none"],
  ["POST", `/batches/${nobody}/cancel`, "/batches/none/cancel"],
];

async function expectNothingStored(api: Api, run: () => Promise<void>): Promise<void> {
  const before = await api.newest();
  await run();
  expect(await api.newest()).toEqual(before);
}

const malformed: Body[] = [
  "",
  '{"code": "print(1)"',
  '{"code":"1"}{"code":"1"}',
  '{"code":"1"} // x',
  '{"code":"1",}',
  '{"code":"1","input_data":{"a":NaN}}',
  '{"code":"1","__proto__":{"timeout":1}}',
  '\u{feff}{"code":"1"}',
  '[{"code":"1"}]',
  '"print(1)"',
  "null",
  "1.0",
  // A byte that no UTF-8 has, and a surrogate in UTF-8.
  Uint8Array.from([0x7b, 0x22, 0x63, 0x22, 0x3a, 0x22, 0xff, 0x22, 0x7d]),
  Uint8Array.from([0x22, 0xed, 0xa0, 0x80, 0x22]),
  `{"code":"1","input_data":${'{"a":'.repeat(512)}1${"}".repeat(513)}`,
  `{"code":"1","input_data":${"[".repeat(20_000)}`,
];

/** Members of a request with more values than are allowed, by the path of the fault. */
const tooMany: [path: string, fields: string][] = [
  ["args", `"args":${many(100_000)}`],
  ["args", `"args":${many(10_001)}`],
  ["command", `"command":${many(10_001)}`],
  ["requirements", `"requirements":${many(101)}`],
  ["metadata", `"metadata":{${keys(51)}}`],
  ["metadata", `"metadata":{${keys(50_001)}}`],
  ["files", `"files":${many(101)}`],
  ["tools", `"tools":${many(101)}`],
  ["x", `"x":{"input_data":${many(100_000)}}`],
  ["input_data", `"input_data":{"a":${many(1_000_000)}}`],
  ["input_data", `"input_data":{${keys(100_001)}}`],
  ["jobs.1.args", `"jobs":[{},{"args":${many(100_000)}}]`],
  ["jobs.1.input_data", `"jobs":[{},{"input_data":{"a":${many(1_000_000)}}}]`],
  ["jobs", `"jobs":${many(1001)}`],
];

export const validationRows: Row[] = [
  test("A body with a Content-Encoding is 415 that names it, and nothing is stored", (api) =>
    expectNothingStored(api, async () => {
      const headers = { "Content-Type": "application/json", "Content-Encoding": "gzip" };
      const body = Uint8Array.from([0x1f, 0x8b, 8, 0]);
      for (const path of ["/execute", "/execute/batch", "/files?name=a", "/sessions", "/mcp"]) {
        const reply = await fetch(api.url + path, { method: "POST", headers, body });
        const { code, detail } = (await reply.json()) as Record<string, string>;
        expect([path, reply.status, code]).toEqual([path, 415, "unsupported_encoding"]);
        expect(detail).toContain("Content-Encoding: gzip");
      }
    })),
  ...paths.map((path) =>
    test(`POST ${path} with a wrong field is 400 at its path, alone and in a batch, and nothing is stored`, (api) =>
      expectNothingStored(api, async () => {
        for (const [field, value, more] of faults) {
          const sent = { code: "print(1)", ...more, [field.split(".")[0]!]: value };
          expectFault(await api.post(path, sent), field);
          if (path === "/execute") continue;
          const batch = { jobs: [{ code: "1" }, sent], atomic: true };
          expectFault(await api.post("/execute/batch", batch), `jobs.1.${field}`);
        }
      })),
  ),
  ...Object.entries(badQueries).map(([path, queries]) =>
    test(`GET ${path} with a wrong query is 400 with the parameter's name`, async (api) => {
      for (const query of queries.split(" ")) {
        const reply = await api.get(`${path}?${query}`);
        expect([query, reply.status]).toEqual([query, 400]);
        expect(problemOf(reply).errors?.map((fault) => fault.path)).toEqual([query.split("=")[0]]);
      }
    }),
  ),
  test("A job, execution, batch, dead letter or delivery that there is not is 404", async (api) => {
    for (const [method, ...paths] of nowhere) {
      for (const path of paths) {
        const { status } = await api.send(method, path);
        expect([method, path, status]).toEqual([method, path, 404]);
      }
    }
  }),
  test("hostile 31: requirements that pip, a shell or a file system would not take as plain names are 400 at that path, and nothing is stored", (api) =>
    expectNothingStored(api, async () => {
      for (const text of notNames) {
        for (const path of paths) {
          const reply = await api.post(path, { code: "1", requirements: ["numpy", text] });
          expectFault(reply, "requirements.1");
        }
      }
    })),
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
  ...paths.map((path) =>
    test(`POST ${path} with a body that is no JSON object is 400: cut, with more behind it, of another type, not UTF-8, too deep, or has the field __proto__`, async (api) => {
      const headers = { "Content-Type": "application/json" };
      for (const sent of malformed) {
        const { status } = await api.send("POST", path, { body: sent, headers });
        expect([sent.slice(0, 40), status]).toEqual([sent.slice(0, 40), 400]);
      }
    }),
  ),
  ...on("with a long queue", [
    test("A list or an object with too many values is 400 at its path, with the bound", async (api) => {
      for (const [field, fields] of tooMany) {
        const isBatch = field.startsWith("jobs");
        const path = isBatch ? "/execute/batch" : "/execute/async";
        const reply = await api.post(path, `{${isBatch ? "" : '"code":"1",'}${fields}}`);
        expectFault(reply, field);
        const { message } = problemOf(reply).errors![0]!;
        expect(message).toMatch(/(at most|more than) \d+ (entries|keys)/);
      }
    }),
  ]),
  test("Nesting up to the limit is accepted", async (api) => {
    const sent = `{"code":"1","input_data":${'{"a":'.repeat(510)}{}${"}".repeat(511)}`;
    expect((await api.post("/execute/async", sent)).status).toBe(202);
  }),
  test("A body of another type than JSON is 400, and the answer says so", async (api) => {
    const other = ["text/plain", "application/x-www-form-urlencoded", "application/jsonp", ""];
    for (const type of [...other, "multipart/form-data; boundary=x"]) {
      const body = new Blob(['{"code":"1"}'], { type: "" });
      const headers = type ? { "Content-Type": type } : {};
      const reply = await api.send("POST", "/execute/async", { body, headers });
      expect([type, reply.status]).toEqual([type, 400]);
      expect(problemOf(reply).detail).toContain("application/json");
    }
  }),
  test("A body of a type of JSON is read, in any spelling", async (api) => {
    for (const type of [
      "application/json",
      "application/json; charset=utf-8",
      "Application/JSON",
      "application/vnd.api+json",
    ]) {
      const headers = { "Content-Type": type };
      const good = await api.send("POST", "/execute/async", { body: '{"code":"1"}', headers });
      expect([type, good.status]).toEqual([type, 202]);
      expectFault(await api.send("POST", "/execute/async", { body: "{}", headers }), "code");
    }
  }),
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
  test("A body over max_request_bytes is 413, one of exactly that size is accepted, with Content-Length or streaming", async (api) => {
    const empty = JSON.stringify({ code: "" }).length;
    const headers = { "Content-Type": "application/json" };
    for (const [bytes, status] of [
      [maxRequestBytes, 202],
      [maxRequestBytes + 1, 413],
    ] as const) {
      const text = JSON.stringify({ code: long(bytes - empty) });
      for (const path of status === 202 ? ["/execute/async"] : paths) {
        for (const body of [text, new Blob([text]).stream()]) {
          const reply = await api.send("POST", path, { body, headers });
          expect(reply.status).toBe(status);
          if (status === 413) expect(problemOf(reply).detail).toContain(String(maxRequestBytes));
        }
      }
    }
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
  test("A stream may hold NUL, ANSI sequences, a byte order mark, CR LF and bytes that are no UTF-8", async (api) => {
    for (const [written, shown] of [
      [bytes("a\0b\0"), "a\0b\0"],
      [bytes("\u001b[31mred\u001b[0m\u0007"), "\u001b[31mred\u001b[0m\u0007"],
      [Uint8Array.from([0x61, 0xff, 0xc3, 0x28]), "a\u{fffd}\u{fffd}("],
      [Uint8Array.from([0xed, 0xa0, 0x80]), "\u{fffd}\u{fffd}\u{fffd}"],
      [bytes("\u{feff}a"), "\u{feff}a"],
      [bytes("a\r\nb\r"), "a\r\nb\r"],
    ] as const) {
      const record = JSON.parse(await recordAfter(api, written, null)) as Record<string, unknown>;
      expect([record["stdout"], record["stderr"]]).toEqual([shown, shown]);
    }
  }),
  test("A result whose output is no JSON object, too deep or of too many values is refused, and the job goes on", async (api) => {
    const { agent, job_id, lease_id } = await working(api);
    for (const output_json of [
      "{",
      "[1]",
      '"text"',
      "null",
      "1",
      '{"a":NaN}',
      `{"a":${"[".repeat(600)}${"]".repeat(600)}}`,
      `{"too many":[${"{},".repeat(limits.resultJsonMaxValues)}{}]}`,
    ]) {
      const { status } = await agent.result(lease_id, { output_json });
      expect([output_json.slice(0, 20), status]).toEqual([output_json.slice(0, 20), 400]);
    }
    expect((await api.job(job_id)).status).toBe("running");
    expect((await agent.result(lease_id)).status).toBe(200);
  }),
];

const stdin = "\u{feff}tea\r\n\0\u00e4\u{1f600}\n";
const args = ["--verbose", "", "\u00e4 b\n\"'", "\u{1f600}"];
const given = { stdin, args };
const mebibyte = 1024 ** 2;

const cpp = { language: "cpp", compile_timeout: 20 };
const leasedCpp = {
  file: "main.cpp",
  compile: ["g++", "-std=c++17", "-O2", "/code/main.cpp", "-o", "/tmp/a.out"],
  compile_timeout_s: 20,
  run: ["/tmp/a.out"],
};
const otherTools = { tools: [{ name: "other" }] };
const leasedTools = (functions: object[]) => ({ tools: { functions, timeout_s: 9 } });
const timedTools = { ...withTools, tool_timeout: 9 };

/** Fields of a job, those that a job derived from it brings, and what the agent gets then. */
const derivations: [parent: Record<string, unknown>, own: object, leased: object][] = [
  [given, {}, given],
  [given, { stdin: "other" }, { ...given, stdin: "other" }],
  [given, { stdin: "", args: [] }, { stdin: undefined, args: undefined }],
  [cpp, {}, { program: leasedCpp }],
  [{ results: true }, {}, { results: true }],
  [{ results: true }, { results: false }, { results: undefined }],
  [timedTools, {}, leasedTools(withTools.tools)],
  [timedTools, otherTools, leasedTools(otherTools.tools)],
  [timedTools, { tools: [] }, { tools: undefined }],
];

/** The job that an agent takes next, which is this one. */
async function taken(api: Api, id: string): Promise<LeasedJob> {
  const job = await api.agent().takeJob();
  expect(job.execution_id).toBe(id);
  return job;
}

export const inputRows: Row[] = [
  test("The agent and the full record get stdin and args as they were sent", async (api) => {
    const { job_id } = await api.submit(given);
    expect(await taken(api, job_id)).toMatchObject(given);
    expect(await api.record(job_id)).toMatchObject(given);
    expect(await api.record(job_id, "")).not.toHaveProperty("stdin");
    const listed = await api.get("/executions?fields=stdin,args&limit=1");
    expect(body(listed)).toMatchObject({ items: [{ execution_id: job_id, ...given }] });
  }),
  test("POST /execute takes stdin and args", async (api) => {
    const agent = await api.connected();
    const reply = api.post("/execute", { code: "print(1)", ...given });
    const job = await agent.takeJob();
    expect(job).toMatchObject(given);
    await agent.result(job.lease_id);
    expect((await reply).status).toBe(200);
  }),
  test("Each job of a batch has its own stdin, args, language, tools and results", async (api) => {
    const own = [{ stdin }, {}, { args }, given, cpp, { command }, withTools, { results: true }];
    const jobs = own.map((one) => ({ code: "print(1)", ...one }));
    expect((await api.post("/execute/batch", { jobs })).status).toBe(202);
    const agent = api.agent();
    const told = [];
    for (const _ of jobs) {
      const { stdin, args, program, tools, results } = await agent.takeJob();
      told.push({ stdin, args, file: program?.file, tools: tools?.functions, results });
    }
    expect(told).toEqual([
      { stdin },
      {},
      { args },
      given,
      { file: "main.cpp" },
      { file: "main" },
      { ...withTools, results: true },
      { results: true },
    ]);
  }),
  ...["rerun", "fork"].map((what) =>
    test(`A ${what} has the stdin, args, language, tools and results of its parent, unless it brings its own`, async (api) => {
      const agent = api.agent();
      for (const [fields, own, expected] of derivations) {
        const { job_id: parent } = await api.submit(fields);
        await agent.result((await agent.takeJob()).lease_id);
        const sent = { ...(what === "fork" && { code: "print(2)" }), ...own };
        const reply = await api.post(`/jobs/${parent}/${what}`, sent);
        expect(reply.status).toBe(202);
        const job = await agent.takeJob();
        expect(job.execution_id).toBe((body(reply) as { job_id: string }).job_id);
        const told = Object.keys(expected).map((name) => [name, job[name as keyof LeasedJob]]);
        expect(Object.fromEntries(told)).toEqual(expected);
        await agent.result(job.lease_id);
      }
    }),
  ),
  test("Empty stdin and args, Python by name and results: false are as if they were not given: the same job, whose record has no stdin and args", async (api) => {
    const key = { idempotency_key: crypto.randomUUID() };
    const plain = await api.submit(key);
    for (const same of [{ stdin: "", args: [] }, { language: "python" }, { results: false }]) {
      expect((await api.submit({ ...key, ...same })).job_id).toBe(plain.job_id);
    }
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
  // Their requests are larger than most servers of the table allow.
  ...on("with a long queue", [
    test("An argument above 128 KiB, or more arguments than they hold, are 400", async (api) => {
      for (const args of [["x".repeat(128 * 1024)], Array<string>(128 * 1024 + 1).fill("")]) {
        for (const where of paths) expectFault(await api.post(where, { code: "1", args }), "args");
      }
    }),
    test("stdin may be as large as a request, and args 128 KiB", async (api) => {
      const most = { stdin: "x".repeat(3 * mebibyte), args: ["y".repeat(128 * 1024 - 1)] };
      const { job_id } = await api.submit(most);
      expect(await taken(api, job_id)).toMatchObject(most);
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
    expect(await taken(api, job_id)).toMatchObject(given);
  }),
];

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
      expect((await taken(api, job_id)).program).toEqual(expected);
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
];
