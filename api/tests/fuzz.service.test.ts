import * as fc from "fast-check";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { z } from "zod";
import { jsonRequest } from "../../scripts/operate/command.ts";
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
import {
  acceptedBodiesOf,
  bodiesOf,
  expectDescribed,
  expectSound,
  type FuzzRequest,
  fuzzRuns,
  requestsTo,
  segments,
  send,
} from "../testing/fuzz.ts";
import { openApiCheck } from "../testing/openapi-check.ts";
import { endpointsOf, type OpenApiDocument } from "../testing/openapi-document.ts";
import { readDocument } from "../testing/read-document.ts";
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
    ["/leases/{id}/logs", OutputReport],
    ["/leases/{id}/started", StartedReport],
    ["/leases/{id}/result", ResultReport],
    ["/leases/{id}/release", ReleaseReport],
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
