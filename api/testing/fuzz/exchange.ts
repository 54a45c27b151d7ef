import { expect } from "vitest";
import { Problem } from "../../../shared/wire/errors.ts";
import type { Answer, OpenApiCheck } from "../openapi-check.ts";

export interface FuzzRequest {
  method: string;
  /** With its query, percent-encoded. */
  path: string;
  headers?: Record<string, string>;
  body?: Uint8Array<ArrayBuffer> | undefined;
}

/** A request that takes longer counts as hanging. */
const hangMs = 60_000;

export async function send(url: string, request: FuzzRequest): Promise<Answer> {
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
export function expectSound(request: FuzzRequest, answer: Answer): void {
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
export function expectDescribed(check: OpenApiCheck, request: FuzzRequest, answer: Answer): void {
  expectSound(request, answer);
  if (answer.status === 431) return;
  const { pathname } = new URL(request.path, "http://api");
  const faults = check.faultsOfAnswer(request.method, pathname, answer);
  expect({ body: answer.body, faults }).toEqual({ body: answer.body, faults: [] });
}
