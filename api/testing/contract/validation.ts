import { expect } from "vitest";
import { type Api, expectFault, problemOf } from "./api.ts";
import { each, type Row } from "./row.ts";
import { maxRequestBytes, maxTimeoutS } from "./servers.ts";

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
  ...each(
    ["/execute", "/execute/batch", "/files?name=a", "/sessions", "/mcp"],
    (path) => `POST ${path} with a Content-Encoding is 415 that names it, and nothing is stored`,
    (api, path) =>
      expectNothingStored(api, async () => {
        const headers = { "Content-Type": "application/json", "Content-Encoding": "gzip" };
        const body = Uint8Array.from([0x1f, 0x8b, 8, 0]);
        const reply = await fetch(api.url + path, { method: "POST", headers, body });
        const { code, detail } = (await reply.json()) as Record<string, string>;
        expect([reply.status, code]).toEqual([415, "unsupported_encoding"]);
        expect(detail).toContain("Content-Encoding: gzip");
      }),
  ),
  ...paths.flatMap((path) =>
    each(
      faults,
      ([field, value]) => `POST ${path} with ${field} = ${show(value)} is 400 at that path`,
      (api, [field, value]) =>
        expectNothingStored(api, async () => {
          const [name = ""] = field.split(".");
          expectFault(await api.post(path, { code: "print(1)", [name]: value }), field);
        }),
    ),
  ),
  ...each(
    notNames,
    (text) =>
      `hostile 31: requirements with ${show(text)} are 400 at that path, and nothing is stored`,
    (api, text) =>
      expectNothingStored(api, async () => {
        for (const path of paths) {
          const reply = await api.post(path, { code: "1", requirements: ["numpy", text] });
          expectFault(reply, "requirements.1");
        }
      }),
  ),
  {
    rule: "One answer lists all faults of a request",
    async check(api) {
      const reply = await api.post("/execute/async", {
        code: "",
        timeout: 0,
        startup_timeout: 1,
        x: 1,
      });
      const told = problemOf(reply).errors?.map(({ path }) => path);
      expect(told?.toSorted()).toEqual(["code", "startup_timeout", "timeout", "x"]);
    },
  },
  ...paths.flatMap((path) =>
    each(
      malformed,
      ([what]) => `POST ${path} with ${what} for a body is 400`,
      async (api, [, sent]) => {
        const headers = { "Content-Type": "application/json" };
        const reply = await api.send("POST", path, { body: sent, headers });
        expect(reply.status).toBe(400);
      },
    ),
  ),
  ...each(
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
    ] as const,
    ([path, fields, field]) =>
      `POST ${path} with ${fields.length} characters of too many values is 400 at ${field}, with the bound`,
    async (api, [path, fields, field]) => {
      const reply = await api.post(
        path,
        `{${path === "/execute/async" ? '"code":"1",' : ""}${fields}}`,
      );
      expectFault(reply, field);
      expect(problemOf(reply).errors?.[0]?.message).toMatch(
        /(at most|more than) \d+ (entries|keys)/,
      );
    },
    { server: "with a long queue" },
  ),
  {
    rule: "Nesting up to the limit is accepted",
    async check(api) {
      const sent = `{"code":"1","input_data":${'{"a":'.repeat(510)}{}${"}".repeat(511)}`;
      expect((await api.post("/execute/async", sent)).status).toBe(202);
    },
  },
  ...each(
    [
      "text/plain",
      "application/x-www-form-urlencoded",
      "multipart/form-data; boundary=x",
      "application/jsonp",
      "",
    ],
    (type) => `A body of type ${type || "(none)"} is 400`,
    async (api, type) => {
      const body = new Blob(['{"code":"1"}'], { type: "" });
      const headers = type ? { "Content-Type": type } : {};
      const reply = await api.send("POST", "/execute/async", { body, headers });
      expect(reply.status).toBe(400);
      expect(problemOf(reply).detail).toContain("application/json");
    },
  ),
  ...each(
    [
      "application/json",
      "application/json; charset=utf-8",
      "Application/JSON",
      "application/vnd.api+json",
    ],
    (type) => `A body of type ${type} is read as JSON`,
    async (api, type) => {
      const headers = { "Content-Type": type };
      const good = await api.send("POST", "/execute/async", { body: '{"code":"1"}', headers });
      expect(good.status).toBe(202);
      expectFault(await api.send("POST", "/execute/async", { body: "{}", headers }), "code");
    },
  ),
  {
    rule: "A timeout above the schema's limit is 400, above the configured limit 422",
    async check(api) {
      for (const path of paths) {
        expect((await api.post(path, { code: "1", timeout: 86_401 })).status).toBe(400);
        for (const timeout of [maxTimeoutS + 1, 86_400]) {
          const reply = await api.post(path, { code: "1", timeout });
          expect(reply.status).toBe(422);
          expect(problemOf(reply).detail).toContain(String(maxTimeoutS));
        }
      }
      await api.submit({ timeout: maxTimeoutS });
    },
  },
  {
    rule: "Missing fields get the contract's defaults",
    async check(api) {
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
    },
  },
  {
    rule: "A timeout may be written as 30.0, because some clients write whole numbers like that",
    async check(api) {
      expect((await api.post("/execute/async", '{"code":"1","timeout":30.0}')).status).toBe(202);
      expect(await api.agent().takeJob()).toMatchObject({ timeout_s: 30 });
    },
  },
  ...paths.flatMap((path): Row[] => [
    {
      rule: `POST ${path} with a Content-Length over max_request_bytes is 413`,
      async check(api) {
        const reply = await api.post(path, { code: long(maxRequestBytes) });
        expect(reply.status).toBe(413);
        expect(problemOf(reply).detail).toContain(String(maxRequestBytes));
      },
    },
    {
      rule: `POST ${path} with a streamed body over max_request_bytes is 413`,
      async check(api) {
        const body = new Blob([JSON.stringify({ code: long(maxRequestBytes) })]).stream();
        const reply = await api.send("POST", path, {
          body,
          headers: { "Content-Type": "application/json" },
        });
        expect(reply.status).toBe(413);
      },
    },
  ]),
  {
    rule: "A body of exactly max_request_bytes is accepted, with Content-Length or streaming",
    async check(api) {
      const empty = JSON.stringify({ code: "" }).length;
      const text = JSON.stringify({ code: long(maxRequestBytes - empty) });
      expect((await api.post("/execute/async", text)).status).toBe(202);
      const reply = await api.send("POST", "/execute/async", {
        body: new Blob([text]).stream(),
        headers: { "Content-Type": "application/json" },
      });
      expect(reply.status).toBe(202);
    },
  },
];
