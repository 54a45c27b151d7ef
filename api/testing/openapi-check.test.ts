import { expect, test } from "vitest";
import { openApiCheck } from "./openapi-check.ts";

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
