import { Validator } from "@seriousme/openapi-schema-validator";
import { describe, expect, test } from "vitest";
import type { Config } from "../../shared/config/config.ts";
import { openApiCheck } from "../testing/openapi-check.ts";
import {
  endpointsOf,
  examplesOf,
  type OpenApiDocument,
  type OpenApiMedia,
  type OpenApiResponse,
  resolve,
} from "../testing/openapi-document.ts";
import { readDocument } from "../testing/temp-store.ts";

const key = "0123456789abcdef";

const open = () => readDocument();
const locked = () => readDocument({ api_auth_enabled: true, api_keys: [key] });

test.each([
  ["open", open],
  ["with keys", locked],
])("the document of a service %s is valid OpenAPI 3.1", async (_title, read) => {
  const validator = new Validator();
  const { valid, errors } = await validator.validate({ ...(await read()) });
  expect(errors).toBeUndefined();
  expect(valid).toBe(true);
  expect(validator.version).toBe("3.1");
});

test("every operation has a unique name, a group, a summary and its answers", async () => {
  const document = await open();
  const endpoints = endpointsOf(document);
  const names = endpoints.map(({ operation }) => operation.operationId);
  expect(new Set(names).size).toBe(endpoints.length);
  for (const { operation } of endpoints) {
    expect(operation.operationId).toMatch(/^[a-z][A-Za-z]+$/);
    expect(operation.tags).toHaveLength(1);
    expect(document.tags.map(({ name }) => name)).toContain(operation.tags[0]);
    expect(operation.summary).toMatch(/^[A-Z].+[^.]$/);
    expect(Object.keys(operation.responses)).toContain("500");
  }
});

test("groups are in the order that a newcomer needs, and none is empty", async () => {
  const document = await open();
  const used = endpointsOf(document).map(({ operation }) => operation.tags[0]);
  expect(document.tags.map(({ name }) => name)).toEqual([...new Set(used)]);
});

test("every schema is a component, and every component is used", async () => {
  const document = await locked();
  const inline = bodies(document).filter(
    ({ media: { schema } }) => !("$ref" in schema) && schema["type"] !== "string",
  );
  expect(inline.map(({ at }) => at)).toEqual(["getOpenApi 200"]);

  const text = JSON.stringify(document);
  const { securitySchemes: _, ...referable } = document.components;
  const references = Object.entries(referable).flatMap(([kind, components]) =>
    Object.keys(components).map((name) => `"#/components/${kind}/${name}"`),
  );
  expect(references.filter((reference) => !text.includes(reference))).toEqual([]);

  const unnamed = Object.entries(document.components["schemas"] ?? {}).filter(
    ([, schema]) => nestedShapes(schema).length > 0,
  );
  expect(unnamed.map(([name]) => name)).toEqual([]);
});

test("every JSON body has examples, and every example is valid", async () => {
  const document = await locked();
  const check = openApiCheck(document);
  for (const { at, media } of bodies(document)) {
    if (at === "getOpenApi 200" || media.schema["type"] === "string") continue;
    const examples = examplesOf(media);
    expect(examples.length, `examples of ${at}`).toBeGreaterThan(0);
    for (const [name, value] of examples) {
      expect(check.faultsOfValue(media.schema, value), `${at}, ${name}`).toEqual([]);
    }
  }
});

test("no parameter may be null, which a query cannot express", async () => {
  const parameters = endpointsOf(await open()).flatMap(({ operation }) => operation.parameters);
  expect(JSON.stringify(parameters)).not.toContain('"null"');
});

test("queries have the contract's bounds and defaults", async () => {
  const document = await open();
  const bounds = (path: string, name: string) => {
    const parameters = document.paths[path]?.["get"]?.parameters ?? [];
    const told = parameters.map((each) => resolve(document, each));
    const { minimum, maximum, default: fallback } = told.find((each) => each.name === name)!.schema;
    return [minimum, maximum, fallback];
  };
  expect(bounds("/jobs/{id}/result", "timeout")).toEqual([0, 86_400, 30]);
  expect(bounds("/jobs/{id}/result", "wait")).toEqual([undefined, undefined, false]);
  for (const path of ["/executions", "/dlq"]) {
    expect(bounds(path, "limit")).toEqual([1, 1000, 100]);
    expect(bounds(path, "offset")).toEqual([0, Number.MAX_SAFE_INTEGER, 0]);
  }
});

test("every parameter's example is valid", async () => {
  const document = await open();
  const check = openApiCheck(document);
  for (const { operation } of endpointsOf(document)) {
    for (const told of operation.parameters) {
      const { name, schema, example } = resolve(document, told);
      if (example === undefined) continue;
      expect(check.faultsOfValue(schema, example), `${operation.operationId} ${name}`).toEqual([]);
    }
  }
});

test("every refusal is a problem of its own status", async () => {
  const document = await locked();
  for (const { method, operation } of endpointsOf(document)) {
    for (const [status, told] of Object.entries(operation.responses)) {
      if (Number(status) < 400 || method === "HEAD") continue;
      const { content } = resolve<OpenApiResponse>(document, told);
      expect(content?.["application/problem+json"]).toMatchObject({
        schema: { $ref: "#/components/schemas/Problem" },
        example: { status: Number(status), title: expect.any(String) as string },
      });
    }
  }
});

describe("headers", () => {
  test("every answer carries the correlation id and the security headers, every request may name the id", async () => {
    const document = await locked();
    for (const { operation } of endpointsOf(document)) {
      const names = operation.parameters.map((told) => resolve(document, told).name);
      expect(names).toContain("X-Correlation-ID");
      for (const told of Object.values(operation.responses)) {
        const { headers = {} } = resolve<OpenApiResponse>(document, told);
        expect(Object.keys(headers)).toEqual(
          expect.arrayContaining([
            "X-Correlation-ID",
            "X-Content-Type-Options",
            "X-Frame-Options",
            "RateLimit-Remaining",
          ]),
        );
      }
    }
  });

  test.each([
    ["executeAsync", 202, "Location"],
    ["rerunJob", 202, "Location"],
    ["forkJob", 202, "Location"],
    ["downloadArtifact", 200, "ETag"],
    ["downloadArtifact", 200, "Content-Disposition"],
    ["downloadArtifact", 206, "Content-Range"],
    ["downloadArtifact", 304, "ETag"],
    ["getArtifactHeaders", 200, "Content-Length"],
    ["execute", 401, "WWW-Authenticate"],
    ["execute", 429, "Retry-After"],
    ["execute", 503, "Retry-After"],
  ])("%s %i carries %s", async (name, status, header) => {
    expect(await headersOf(name, status)).toContain(header);
  });
});

describe("keys", () => {
  test("a service without keys asks for none", async () => {
    const document = await open();
    expect(document.security).toEqual([]);
    expect(document.components["securitySchemes"]).toBeUndefined();
    expect(statusesOf(document, "/pool/stats")).not.toContain("401");
  });

  test("a service with keys takes them in its header or as a bearer token, except for /health", async () => {
    const document = await readDocument({
      api_auth_enabled: true,
      api_keys: [key],
      api_auth_header: "X-API-Key",
    });
    expect(document.security).toEqual([{ ApiKey: [] }, { Bearer: [] }]);
    expect(document.components["securitySchemes"]).toMatchObject({
      ApiKey: { type: "apiKey", in: "header", name: "X-API-Key" },
      Bearer: { type: "http", scheme: "bearer" },
    });
    expect(statusesOf(document, "/pool/stats")).toContain("401");
    expect(document.paths["/health"]?.["get"]?.security).toEqual([]);
    expect(statusesOf(document, "/health")).not.toContain("401");
    expect(statusesOf(document, "/docs")).toContain("401");
  });

  test("a public description needs no key", async () => {
    const document = await readDocument({
      api_auth_enabled: true,
      api_keys: [key],
      api_docs_public: true,
    });
    for (const path of ["/docs", "/openapi.json"]) {
      expect(document.paths[path]?.["get"]?.security).toEqual([]);
      expect(statusesOf(document, path)).not.toContain("401");
    }
  });
});

test("without a rate limit, no 429 is documented", async () => {
  const document = await readDocument({ api_rate_limit_enabled: false });
  expect(JSON.stringify(document.paths)).not.toContain("TooManyRequests");
});

async function headersOf(name: string, status: number): Promise<string[]> {
  const document = await locked();
  const { operation } = endpointsOf(document).find((e) => e.operation.operationId === name)!;
  const response = resolve<OpenApiResponse>(document, operation.responses[status]!);
  return Object.keys(response.headers ?? {});
}

function statusesOf(document: OpenApiDocument, path: string): string[] {
  return Object.keys(document.paths[path]?.["get"]?.responses ?? {});
}

/** Every request and answer body, with the operation and status it belongs to. */
function bodies(document: OpenApiDocument): { at: string; media: OpenApiMedia }[] {
  return endpointsOf(document).flatMap(({ operation }) => {
    const { operationId, requestBody, responses } = operation;
    const requests = Object.values(requestBody?.content ?? {}).map((media) => ({
      at: `${operationId} request`,
      media,
    }));
    const answers = Object.entries(responses).flatMap(([status, told]) =>
      Object.values(resolve<OpenApiResponse>(document, told).content ?? {}).map((media) => ({
        at: `${operationId} ${status}`,
        media,
      })),
    );
    return [...requests, ...answers];
  });
}

/** Objects with fields of their own inside a schema: each should be a component instead. */
function nestedShapes(schema: unknown, depth = 0): unknown[] {
  if (typeof schema !== "object" || schema === null) return [];
  const own = depth > 0 && "properties" in schema && "type" in schema ? [schema] : [];
  return [...own, ...Object.values(schema).flatMap((part) => nestedShapes(part, depth + 1))];
}

test("the document has the configured longest timeout and job types, and allows no NUL in code", async () => {
  const document = await readDocument({
    max_timeout: 77,
    job_types: { ml: {}, default: {} },
  } as unknown as Partial<Config>);
  const { schemas } = document.components as { schemas: Record<string, Schema> };
  for (const name of ["ExecuteRequest", "RerunRequest", "ForkRequest"]) {
    expect(schemas[name]?.properties).toMatchObject({
      timeout: { maximum: 77 },
      job_type: { enum: ["default", "ml"] },
    });
  }
  const check = openApiCheck(document);
  const faults = (fields: object) =>
    check.faultsOfValue({ $ref: "#/components/schemas/ExecuteRequest" }, { code: "1", ...fields });
  expect(faults({ code: "line\nline\n", timeout: 77, job_type: "ml" })).toEqual([]);
  for (const wrong of [
    { code: "a\0b" },
    { idempotency_key: "\0" },
    { timeout: 78 },
    { job_type: "none" },
  ]) {
    expect(faults(wrong)).not.toEqual([]);
  }
});

interface Schema {
  properties: Record<string, object>;
}

test("an artifact may have any content type", async () => {
  const { paths } = await open();
  const answers = paths["/jobs/{job_id}/artifacts/{artifact_name}"]?.["get"]?.responses;
  for (const status of ["200", "206"]) {
    const { content = {} } = (answers?.[status] ?? {}) as OpenApiResponse;
    expect(Object.keys(content)).toEqual(["*/*"]);
  }
});

const check = openApiCheck({
  openapi: "3.1.0",
  tags: [],
  security: [],
  components: {
    schemas: { Job: { type: "object", properties: { id: { type: "string" } }, required: ["id"] } },
    headers: { ETag: { required: true, schema: { type: "string" } } },
  },
  paths: {
    "/jobs/{id}": {
      get: {
        operationId: "getJob",
        tags: [],
        summary: "",
        parameters: [],
        responses: {
          200: {
            description: "",
            headers: { ETag: { $ref: "#/components/headers/ETag" } },
            content: { "application/json": { schema: { $ref: "#/components/schemas/Job" } } },
          },
          304: { description: "" },
        },
      },
    },
  },
});

function faults(path: string, status: number, body: string, headers: Record<string, string> = {}) {
  const all = { "Content-Type": "application/json", ETag: '"a"', ...headers };
  return check.faultsOfAnswer("GET", path, { status, body, headers: new Headers(all) });
}

test("an answer as described has no fault", () => {
  expect(faults("/jobs/a", 200, '{"id":"a"}')).toEqual([]);
  expect(faults("/jobs/a", 304, "")).toEqual([]);
});

test.each([
  ["a field that is missing", faults("/jobs/a", 200, "{}"), "must have required property 'id'"],
  ["a field of another type", faults("/jobs/a", 200, '{"id":1}'), "/id must be string"],
  ["a field not described", faults("/jobs/a", 200, '{"id":"a","x":1}'), '"additionalProperty":"x"'],
  ["a status not described", faults("/jobs/a", 201, "{}"), "getJob does not describe 201"],
  ["a path not described", faults("/none", 200, "{}"), "GET /none is not described"],
  ["a body not described", faults("/jobs/a", 304, "{}"), "a body, but none told"],
  [
    "another content type",
    faults("/jobs/a", 200, "a", { "Content-Type": "text/plain" }),
    "content type text/plain is not described",
  ],
])("%s is a fault", (_title, found, fault) => {
  expect(found.join("; ")).toContain(fault);
});

test("a header that is missing is a fault", () => {
  const headers = new Headers({ "Content-Type": "application/json" });
  const answer = { status: 200, body: '{"id":"a"}', headers };
  expect(check.faultsOfAnswer("GET", "/jobs/a", answer)).toEqual(["header ETag is missing"]);
});
