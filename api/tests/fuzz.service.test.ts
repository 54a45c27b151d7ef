import * as fc from "fast-check";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import { jsonRequest } from "../../scripts/operate/command.ts";
import { isLab } from "../../shared/testing/test-file.ts";
import { Problem } from "../../shared/wire/errors.ts";
import { OutputReport } from "../../shared/wire/executions.ts";
import {
  AgentStatus,
  BuildLogChunk,
  BuildReport,
  LeaveRequest,
  PollRequest,
  ReleaseReport,
  ResultReport,
  SessionEnded,
  SessionReady,
  StartedReport,
} from "../../shared/wire/leases.ts";
import { type Answer, openApiCheck, type OpenApiCheck } from "../testing/openapi-check.ts";
import {
  type Endpoint,
  endpointsOf,
  type JsonSchema,
  type OpenApiDocument,
  type OpenApiParameter,
  resolve,
} from "../testing/openapi-document.ts";
import { readDocument } from "../testing/temp-store.ts";
import { ScriptedAgent, sha256 } from "../testing/scripted-agent.ts";
import { type NodeProcess, startNode } from "../testing/start-node.ts";

describe("fuzz", async () => {
  const document = await readDocument();
  const check = openApiCheck(document);
  /** Removals come last: the others know jobs that are there. */
  const endpoints = endpointsOf(document)
    .map((endpoint) => ({ ...endpoint, name: endpoint.operation.operationId }))
    .toSorted((a, b) => Number(a.method === "DELETE") - Number(b.method === "DELETE"));

  let api: NodeProcess;
  let jobIds: string[];

  beforeAll(async () => {
    api = await startNode({
      AIRLOCK_API_RATE_LIMIT_ENABLED: "false",
      AIRLOCK_MAX_QUEUE_SIZE: "30",
    });
    jobIds = [await endedJob(), await endedJob()];
  });
  afterAll(() => api.close());

  describe("the answer to any request is valid and as described", () => {
    test.each(endpoints)("$name", async (endpoint) => {
      expect.hasAssertions();
      const requests = requestsTo(endpoint, document, {
        id: jobIds,
        job_id: jobIds,
        artifact_name: ["_code.py", "_input.json"],
        name: ["default"],
      });
      await fc.assert(
        fc.asyncProperty(requests, async (request) => {
          expectDescribed(check, request, await send(api.url, request));
        }),
        fuzzRuns,
      );
    });

    test("a path that is not an endpoint", async () => {
      const requests = fc.record({
        method: fc.constantFrom("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "QUERY"),
        path: fc.array(segments, { maxLength: 4 }).map((parts) => `/none/${parts.join("/")}`),
      });
      await fc.assert(
        fc.asyncProperty(requests, async (request) => {
          const answer = await send(api.url, request);
          expectSound(request, answer);
          expect(answer.status).toBe(404);
        }),
        fuzzRuns,
      );
    });
  });

  /** A job that has ended, so that no request waits for it. */
  async function endedJob(): Promise<string> {
    const response = await fetch(`${api.url}/execute/async`, jsonRequest("POST", { code: "1" }));
    const { job_id } = (await response.json()) as { job_id: string };
    await fetch(`${api.url}/jobs/${job_id}/cancel`, { method: "POST" });
    return job_id;
  }
});

describe("fuzz agent", async () => {
  const token = "agent-token-0123456789";
  const json = { Authorization: `Bearer ${token}`, "Content-Type": "application/json" };
  const ofLease = {
    logs: OutputReport,
    started: StartedReport,
    result: ResultReport,
    release: ReleaseReport,
  };
  const messages: [path: string, schema: z.ZodType][] = [
    ["/poll", PollRequest],
    ["/renew", AgentStatus],
    ["/leave", LeaveRequest],
    ...Object.entries(ofLease).map(([what, schema]): [string, z.ZodType] => [
      `/leases/{id}/${what}`,
      schema,
    ]),
    ["/sessions/{id}/ready", SessionReady],
    ["/sessions/{id}/ended", SessionEnded],
    ["/sessions/{id}/release", ReleaseReport],
    ["/builds/{id}/logs", BuildLogChunk],
    ["/builds/{id}/result", BuildReport],
    ["/builds/{id}/release", ReleaseReport],
  ];
  const files = fc.uint8Array({ maxLength: 50 }).map((bytes) => new Uint8Array(bytes));

  const api = await startNode({
    AIRLOCK_API_RATE_LIMIT_ENABLED: "false",
    AIRLOCK_AGENT_TOKENS: token,
    AIRLOCK_POLL_WAIT_S: "0.1",
  });
  const check = openApiCheck(
    (await (await fetch(`${api.url}/openapi.json`)).json()) as OpenApiDocument,
  );
  afterAll(() => api.close());

  describe("the answer to any request to an agent's endpoint is valid", () => {
    test.each(messages)("%s", async (path, schema) => {
      expect.hasAssertions();
      const requests = fc.record({
        method: fc.constant("POST"),
        path: fc
          .oneof(fc.uuid(), segments)
          .map((id) => `/agent/v1${path.replace("{id}", () => id)}`),
        headers: fc.constant(json),
        body: bodiesOf(schema),
      });
      await expectAllSound(requests);
    });

    test("the request of an image", async () => {
      expect.hasAssertions();
      const images = fc.oneof(segments, fc.constant(`sha256:${"0".repeat(64)}`));
      const requests = fc.record({
        method: fc.constantFrom("GET", "HEAD"),
        path: fc
          .tuple(images, fc.constantFrom("", "/archive"))
          .map(([image, what]) => `/agent/v1/images/${image}${what}`),
        headers: fc.constant({ Authorization: json.Authorization }),
      });
      await expectAllSound(requests);
    });

    test("an upload", async () => {
      expect.hasAssertions();
      const requests = fc.record({
        method: fc.constant("PUT"),
        path: fc
          .tuple(fc.uuid(), segments)
          .chain(([id, name]) =>
            fc.constantFrom(`leases/${id}/artifacts/${name}`, `builds/${id}/image`),
          )
          .map((rest) => `/agent/v1/${rest}`),
        headers: fc.record({
          Authorization: fc.constant(json.Authorization),
          "X-Airlock-SHA256": fc.constantFrom("", "0".repeat(64), "z".repeat(64)),
        }),
        body: files,
      });
      await expectAllSound(requests);
    });
  });

  async function expectAllSound(requests: fc.Arbitrary<FuzzRequest>): Promise<void> {
    await fc.assert(
      fc.asyncProperty(requests, async (request) => {
        expectSound(request, await send(api.url, request));
      }),
      fuzzRuns,
    );
  }

  test("every client can read any report of an agent about a job", async () => {
    expect.hasAssertions();
    const posts = Object.entries(ofLease).map(([what, schema]) =>
      fc.record({
        what: fc.constant(what),
        body: fc.oneof(
          { weight: 4, arbitrary: acceptedBodiesOf(schema) },
          { weight: 1, arbitrary: bodiesOf(schema) },
        ),
      }),
    );
    const uploads = fc.record({ what: segments.map((name) => `artifacts/${name}`), body: files });
    const stories = fc.array(fc.oneof(...posts, uploads), { minLength: 1, maxLength: 6 });
    await fc.assert(
      fc.asyncProperty(stories, async (story) => {
        const agent = new ScriptedAgent(api.url, token);
        const jobId = await submit();
        const { lease_id } = await agent.takeJob();
        for (const { what, body } of story) {
          const request = await postOf(`/agent/v1/leases/${lease_id}/${what}`, body);
          expectSound(request, await send(api.url, request));
        }
        await agent.close();
        for (const path of readersOf(jobId)) {
          const request = { method: "GET", path };
          expectDescribed(check, request, await send(api.url, request));
        }
      }),
      fuzzRuns,
    );
  });

  async function postOf(path: string, body: Uint8Array<ArrayBuffer>): Promise<FuzzRequest> {
    if (!path.includes("/artifacts/")) return { method: "POST", path, headers: json, body };
    const headers = { ...json, "X-Airlock-SHA256": await sha256(body) };
    return { method: "PUT", path, headers, body };
  }

  function readersOf(jobId: string): string[] {
    return [
      `/jobs/${jobId}`,
      `/jobs/${jobId}/result?view=full`,
      "/executions?view=full&limit=3",
      "/dlq?limit=3",
      "/dlq/stats",
      "/pool/stats",
      "/health",
    ];
  }

  async function submit(): Promise<string> {
    const request = {
      method: "POST",
      path: "/execute/async",
      headers: json,
      body: new Uint8Array(Buffer.from('{"code":"1"}')),
    };
    const { body } = await send(api.url, request);
    return (JSON.parse(body) as { job_id: string }).job_id;
  }
});

/** Strings that have broken services before. */
const nastyText = fc.oneof(
  fc.constantFrom(
    "",
    " ",
    "\0",
    "a\0b",
    "\ud800",
    "\u{1f4a9}",
    "\u202e\u200b\ufeff",
    "\r\nX-Injected: 1",
    "__proto__",
    "constructor",
    "../../etc/passwd",
    "%2e%2e%2f",
    "%zz",
    "'; drop table executions; --",
    "${7*7}{{7*7}}",
    "NaN",
    "true",
    "1e400",
    "-0",
    "x".repeat(5000),
  ),
  fc.string({ maxLength: 40, unit: "binary" }),
);

/** Values of the wrong kind, size or shape. */
const nasty: fc.Arbitrary<unknown> = fc.oneof(
  nastyText,
  fc.constantFrom<unknown>(
    null,
    true,
    0,
    -1,
    1.5,
    2 ** 53,
    -(2 ** 63),
    Number.MAX_VALUE,
    5e-324,
    [],
    {},
    [[]],
    { __proto__: null, constructor: 1 },
    JSON.parse('{"__proto__": {"polluted": true}}'),
  ),
  fc.integer({ min: 1, max: 2000 }).map(nested),
);

function nested(depth: number): unknown {
  let value: unknown = 1;
  for (let i = 0; i < depth; i++) value = i % 2 ? [value] : { a: value };
  return value;
}

/** Bodies made of a JSON text: mostly the text, sometimes damaged. */
function damaged(json: string): fc.Arbitrary<Uint8Array<ArrayBuffer>> {
  return fc.oneof(
    { weight: 12, arbitrary: fc.constant(bytes(json)) },
    { weight: 1, arbitrary: fc.nat({ max: json.length }).map((at) => bytes(json.slice(0, at))) },
    {
      weight: 1,
      arbitrary: fc.constantFrom(
        bytes(`\ufeff${json}`),
        bytes(`${json}${json}`),
        bytes(json.replaceAll(/\d+/g, "1e400")),
        bytes(json.replace("{", '{"__proto__":{"a":1},')),
        bytes("["),
        bytes("[".repeat(100_000)),
        bytes("null"),
        new Uint8Array([0xff, 0xfe, 0x7b, 0x00]),
        new Uint8Array([0x7b, 0x22, 0xc3, 0x28, 0x22, 0x7d]),
      ),
    },
    { weight: 1, arbitrary: fc.uint8Array({ maxLength: 60 }).map((a) => new Uint8Array(a)) },
  );
}

function bytes(text: string): Uint8Array<ArrayBuffer> {
  return new Uint8Array(Buffer.from(text));
}

/** Values of path parameters that name existing things, by parameter name. */
type Known = Record<string, string[]>;

/** Requests to an endpoint. Most of their parts match the description, some do not. */
function requestsTo(
  { method, path, operation }: Endpoint,
  document: OpenApiDocument,
  known: Known,
): fc.Arbitrary<FuzzRequest> {
  const lookup: Lookup = (ref) => resolve<JsonSchema>(document, { $ref: ref });
  const parameters = operation.parameters.map((told) => resolve(document, told));
  const placed = (place: string) => parameters.filter((parameter) => parameter.in === place);
  const schema = operation.requestBody?.content["application/json"]?.schema;
  const bodies = schema
    ? arbitraryOf(schema, lookup).chain((value) => damaged(JSON.stringify(value)))
    : fc.constant(undefined);

  return fc
    .record({
      pathname: pathnames(path, placed("path"), known, lookup),
      query: queries(placed("query"), lookup),
      headers: headers(placed("header")),
      body: bodies,
      type: contentTypes,
    })
    .map(({ pathname, query, headers: sent, body, type }) => ({
      method,
      path: query === "" ? pathname : `${pathname}?${query}`,
      headers: { ...sent, ...(body && { "Content-Type": type }) },
      body,
    }));
}

/** Path segments, percent-encoded. */
const segments = nastyText.map(segmentOf);

/** Never empty. Dots are encoded twice, because a client would resolve `..` itself. */
function segmentOf(value: unknown): string {
  return encodeURIComponent(textOf(value)).replaceAll(".", "%252e") || "0";
}

const contentTypes = fc.oneof(
  { weight: 12, arbitrary: fc.constant("application/json") },
  { weight: 1, arbitrary: fc.constantFrom("text/plain", "application/xml", "json", "") },
);

/** Values that a header can have: bytes without line breaks. */
const headerValues = fc.oneof(
  fc.constantFrom("*", '"x"', 'W/"x"', "bytes=0-0", "bytes=-1", "bytes=9-1", "bytes=0-,1-", "\xff"),
  fc.string({ maxLength: 30 }).map((text) => text.replaceAll(/[^\x20-\x7e]/g, "").trim()),
  fc.constant("x".repeat(3000)),
);

function pathnames(
  path: string,
  parameters: OpenApiParameter[],
  known: Known,
  lookup: Lookup,
): fc.Arbitrary<string> {
  const values = parameters.map(({ name, schema }) =>
    fc.oneof(
      fc.constantFrom(...(known[name] ?? ["0"])),
      arbitraryOf(schema, lookup).map(segmentOf),
      segments,
    ),
  );
  return fc
    .tuple(...values)
    .map((filled) =>
      parameters.reduce((at, { name }, i) => at.replace(`{${name}}`, () => filled[i] ?? ""), path),
    );
}

function queries(parameters: OpenApiParameter[], lookup: Lookup): fc.Arbitrary<string> {
  const pair = fc.oneof(
    ...parameters.map(({ name, schema }) =>
      fc.tuple(fc.constant(name), fc.oneof(arbitraryOf(schema, lookup), nastyText)),
    ),
    fc.tuple(nastyText, nastyText),
  );
  return fc.array(pair, { maxLength: 4 }).map((pairs) => {
    const query = new URLSearchParams();
    for (const [name, value] of pairs) query.append(textOf(name), textOf(value));
    return query.toString();
  });
}

function headers(parameters: OpenApiParameter[]): fc.Arbitrary<Record<string, string>> {
  const names = fc.constantFrom(...parameters.map(({ name }) => name));
  return fc.dictionary(names, headerValues, { maxKeys: 3 });
}

function textOf(value: unknown): string {
  return (typeof value === "string" ? value : (JSON.stringify(value) ?? "")).toWellFormed();
}

/** Bodies with a message of a schema, mostly undamaged. */
function bodiesOf(schema: z.ZodType): fc.Arbitrary<Uint8Array<ArrayBuffer>> {
  return valuesOf(schema, 1).chain((value) => damaged(JSON.stringify(value)));
}

/** Bodies with a message that the schema accepts. */
function acceptedBodiesOf(schema: z.ZodType): fc.Arbitrary<Uint8Array<ArrayBuffer>> {
  return valuesOf(schema, 0)
    .filter((value) => schema.safeParse(value).success)
    .map((value) => new Uint8Array(Buffer.from(JSON.stringify(value))));
}

function valuesOf(schema: z.ZodType, odd: number): fc.Arbitrary<unknown> {
  const json = z.toJSONSchema(schema, { io: "input", unrepresentable: "any" }) as JsonSchema;
  const lookup = (ref: string): JsonSchema =>
    ref
      .split("/")
      .slice(1)
      .reduce<unknown>((at, step) => (at as JsonSchema)[step], json) as JsonSchema;
  return arbitraryOf(json, lookup, odd);
}

/** Finds the target of a `$ref`. */
type Lookup = (ref: string) => JsonSchema;

/** Values that a schema allows and, sometimes and at any depth, a value that it does not allow. */
function arbitraryOf(schema: JsonSchema, lookup: Lookup, odd = 1): fc.Arbitrary<unknown> {
  return fc.oneof(
    { weight: 12, arbitrary: allowed(schema, lookup, odd) },
    { weight: odd, arbitrary: nasty },
  );
}

function allowed(schema: JsonSchema, lookup: Lookup, odd: number): fc.Arbitrary<unknown> {
  if (typeof schema["$ref"] === "string") return allowed(lookup(schema["$ref"]), lookup, odd);
  if (Array.isArray(schema["enum"])) return fc.constantFrom(...(schema["enum"] as unknown[]));
  if ("const" in schema) return fc.constant(schema["const"]);
  const options = (schema["anyOf"] ?? schema["oneOf"]) as JsonSchema[] | undefined;
  if (options) return fc.oneof(...options.map((option) => allowed(option, lookup, odd)));
  switch (schema["type"] as string | string[] | undefined) {
    case "string":
      return text(schema);
    case "integer":
      return fc.oneof(fc.integer(range(schema)), fc.constantFrom(...ends(schema)));
    case "number":
      return fc.double({ ...range(schema), noNaN: true, noDefaultInfinity: true });
    case "boolean":
      return fc.boolean();
    case "null":
      return fc.constant(null);
    case "array":
      return fc.array(arbitraryOf((schema["items"] ?? {}) as JsonSchema, lookup, odd), {
        maxLength: 5,
      });
    case "object":
      return object(schema, lookup, odd);
    case undefined:
    default:
      return fc.jsonValue({ maxDepth: 3 });
  }
}

function object(schema: JsonSchema, lookup: Lookup, odd: number): fc.Arbitrary<unknown> {
  const properties = (schema["properties"] ?? {}) as Record<string, JsonSchema>;
  const fields = Object.fromEntries(
    Object.entries(properties).map(([name, field]) => [name, arbitraryOf(field, lookup, odd)]),
  );
  const named = fc.record(fields, { requiredKeys: (schema["required"] ?? []) as string[] });
  if (Object.keys(properties).length > 0) return named;
  return fc.dictionary(fc.string({ maxLength: 20, unit: "grapheme" }), fc.jsonValue(), {
    maxKeys: 4,
  });
}

interface StringSchema {
  format?: string;
  contentEncoding?: string;
  minLength?: number;
  maxLength?: number;
}

function text(schema: StringSchema): fc.Arbitrary<string> {
  if (schema.format === "uuid") return fc.uuid();
  if (schema.contentEncoding === "base64") return fc.base64String({ maxLength: 200 });
  if (schema.format === "date-time") {
    return fc.date({ noInvalidDate: true }).map((date) => date.toISOString());
  }
  const { minLength = 0, maxLength = 200 } = schema;
  return fc.string({ minLength, maxLength: Math.min(maxLength, 200), unit: "grapheme" });
}

function range(schema: JsonSchema): { min: number; max: number } {
  const { minimum = -1000, maximum = 2 ** 31 - 1 } = schema as {
    minimum?: number;
    maximum?: number;
  };
  return { min: Math.max(minimum, -(2 ** 31)), max: Math.min(maximum, 2 ** 31 - 1) };
}

function ends(schema: JsonSchema): number[] {
  const { min, max } = range(schema);
  return [min, min - 1, max, max + 1];
}

interface FuzzRequest {
  method: string;
  /** With its query, percent-encoded. */
  path: string;
  headers?: Record<string, string>;
  body?: Uint8Array<ArrayBuffer> | undefined;
}

/** A request that takes longer counts as hanging. */
const hangMs = 60_000;

async function send(url: string, request: FuzzRequest): Promise<Answer> {
  const { method, path, headers = {}, body } = request;
  const response = await fetch(url + path, {
    method,
    headers,
    redirect: "manual",
    signal: AbortSignal.timeout(hangMs),
    ...(body && { body }),
  });
  return { status: response.status, headers: response.headers, body: await response.text() };
}

/** Checks the rules for the answer to any request: docs/contract.md 4.27, 7.8, 9.16 and 9.18. */
function expectSound(request: FuzzRequest, answer: Answer): void {
  const { status, headers, body } = answer;
  expect({ status, body }).not.toMatchObject({ status: 500 });
  expect(headers.get("x-correlation-id")).toMatch(/^[\x21-\x7e]{1,128}$/);
  expect(headers.get("x-content-type-options")).toBe("nosniff");
  expect(headers.get("x-frame-options")).toBe("DENY");
  if (status < 400 || request.method === "HEAD") return;
  expect(headers.get("content-type")).toBe("application/problem+json");
  const problem = Problem.strict().parse(JSON.parse(body));
  expect(problem.status).toBe(status);
  expect(problem.detail).not.toBe("");
  expect(problem.correlation_id).toBe(headers.get("x-correlation-id"));
}

/** Checks `expectSound` and the OpenAPI document. A 431 is sent before an endpoint is known. */
function expectDescribed(check: OpenApiCheck, request: FuzzRequest, answer: Answer): void {
  expectSound(request, answer);
  if (answer.status === 431) return;
  const { pathname } = new URL(request.path, "http://api");
  const faults = check.faultsOfAnswer(request.method, pathname, answer);
  expect({ body: answer.body, faults }).toEqual({ body: answer.body, faults: [] });
}

/** How many random requests each test sends. */
const fuzzRuns = { numRuns: isLab ? 200 : 25 };
