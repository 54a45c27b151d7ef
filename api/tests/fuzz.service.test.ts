import * as fc from "fast-check";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { expectDescribed, expectSound, send } from "../testing/fuzz/exchange.ts";
import { requestsTo, segments } from "../testing/fuzz/requests.ts";
import { fuzzRuns } from "../testing/fuzz/runs.ts";
import { openApiCheck } from "../testing/openapi-check.ts";
import { endpointsOf } from "../testing/openapi-document.ts";
import { readDocument } from "../testing/read-document.ts";
import { type NodeProcess, startNode } from "../testing/start-node.ts";
import { jsonRequest } from "../../scripts/command/json-request.ts";

const document = await readDocument();
const check = openApiCheck(document);
/** Removals come last: the others know jobs that are there. */
const endpoints = endpointsOf(document)
  .map((endpoint) => ({ ...endpoint, name: endpoint.operation.operationId }))
  .toSorted((a, b) => Number(a.method === "DELETE") - Number(b.method === "DELETE"));

let api: NodeProcess;
let jobIds: string[];

beforeAll(async () => {
  api = await startNode({ AIRLOCK_API_RATE_LIMIT_ENABLED: "false", AIRLOCK_MAX_QUEUE_SIZE: "30" });
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
