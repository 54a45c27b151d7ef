import { expect } from "vitest";
import { problemCodes, type ProblemCode } from "../../../shared/wire/errors.ts";
import type { Reply } from "../scripted-agent.ts";
import { type Api, body, problemOf } from "./api.ts";
import { each, type Row } from "./row.ts";

const uuid = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;

async function echoed(api: Api, given: string): Promise<string> {
  const reply = await api.get("/health", { "X-Correlation-ID": given });
  return reply.headers.get("X-Correlation-ID") ?? "";
}

/** Refusals with their codes, and whether they name the job. */
const refusals: [
  code: ProblemCode,
  status: number,
  (api: Api, id: string) => Promise<Reply>,
  job?: "names the job",
][] = [
  ["invalid_request", 400, (api) => api.post("/execute", "{")],
  ["not_found", 404, (api) => api.get("/nowhere")],
  ["not_found", 404, (api) => api.get("/jobs/x")],
  ["not_found", 404, (api, id) => api.get(`/jobs/${id}/artifacts/none`), "names the job"],
  ["method_not_allowed", 405, (api) => api.send("PATCH", "/health")],
  [
    "wait_timeout",
    408,
    (api, id) => api.get(`/jobs/${id}/result?wait=true&timeout=0`),
    "names the job",
  ],
  ["timeout_too_long", 422, (api) => api.post("/execute", { code: "1", timeout: 80_000 })],
  ["unavailable", 503, (api) => api.post("/execute", { code: "1" })],
];

/** A request for each way in which an answer is made. */
const requests: [
  what: string,
  status: number,
  (api: Api, id: string) => Promise<{ status: number }>,
][] = [
  ["a success", 200, (api, id) => api.get(`/jobs/${id}`)],
  ["an accepted job", 202, (api) => api.post("/execute/async", { code: "1" })],
  ["a file", 200, (api, id) => api.get(`/jobs/${id}/artifacts/_code.py`)],
  ["the headers of a file", 200, (api, id) => api.send("HEAD", `/jobs/${id}/artifacts/_code.py`)],
  [
    "an unchanged file",
    304,
    (api, id) => api.get(`/jobs/${id}/artifacts/_code.py`, { "If-None-Match": "*" }),
  ],
  ["a page", 200, (api) => api.get("/executions")],
  ["a document", 200, (api) => api.get("/openapi.json")],
  ["a bad request", 400, (api) => api.post("/execute", "{")],
  ["an agent without a token", 401, (api) => api.post("/agent/v1/poll", {})],
  ["an unknown path", 404, (api) => api.get("/nowhere")],
  ["a method that is not the path's", 405, (api) => api.send("PATCH", "/health")],
  ["a wait that is over", 408, (api, id) => api.get(`/jobs/${id}/result?wait=true&timeout=0`)],
  ["too long a timeout", 422, (api) => api.post("/execute", { code: "1", timeout: 80_000 })],
  ["no agent", 503, (api) => api.post("/execute", { code: "1" })],
];

export const answerRows: Row[] = [
  ...each(
    requests,
    ([what]) => `The answer to ${what} has the security headers and a correlation id`,
    async (api, [, status, send]) => {
      const { job_id } = await api.submit();
      // Api.send checks them for every answer.
      expect((await send(api, job_id)).status).toBe(status);
    },
  ),
  ...each(
    refusals,
    ([code, status, , job]) => `A ${status} has the code ${code}${job ? `, and ${job}` : ""}`,
    async (api, [code, status, send, job]) => {
      const { job_id } = await api.submit();
      const problem = problemOf(await send(api, job_id));
      expect(problem).toMatchObject({ status, code });
      expect(problem.job_id).toBe(job && job_id);
    },
  ),
  {
    rule: "The type of a refusal is an address on a page that explains every code",
    async check(api) {
      const { type } = problemOf(await api.get("/jobs/x"));
      const reply = await api.get(type);
      expect([reply.status, reply.headers.get("Content-Type")]).toEqual([
        200,
        "text/html; charset=UTF-8",
      ]);
      for (const code of problemCodes) expect(reply.text).toContain(`id="${code}"`);
    },
  },
  ...each(
    ["a", "req-1", "0a1B2c.:/+=@-_", "x".repeat(128)],
    (id) => `A correlation id such as ${id.slice(0, 20)} is echoed`,
    async (api, id) => expect(await echoed(api, id)).toBe(id),
  ),
  ...each(
    [
      "",
      " ",
      "a b",
      "x".repeat(129),
      "x".repeat(10_000),
      "a,b",
      "é",
      '"',
      "a;b",
      "<script>",
      "[a]",
    ],
    (id) =>
      `A correlation id such as ${JSON.stringify(id.slice(0, 20))} (${id.length}) is replaced`,
    async (api, id) => expect(await echoed(api, id)).toMatch(uuid),
  ),
  {
    rule: "Each request without a correlation id gets a new one, which a refusal's body shows too",
    async check(api) {
      const replies = [await api.get("/nowhere"), await api.get("/nowhere")];
      const ids = replies.map((reply) => problemOf(reply).correlation_id);
      expect(ids[0]).toMatch(uuid);
      expect(ids[0]).not.toBe(ids[1]);
    },
  },
  ...each(
    [
      ["PUT", "/execute", "POST"],
      ["GET", "/execute", "POST"],
      ["OPTIONS", "/execute/async", "POST"],
      ["DELETE", "/jobs/x", "GET, HEAD"],
      ["POST", "/jobs/x/artifacts/a/b.txt", "GET, HEAD"],
      ["PATCH", "/job-types/default/build", "GET, HEAD, POST"],
      ["POST", "/health", "GET, HEAD"],
      ["GET", "/dlq/1", "DELETE"],
    ] as const,
    ([method, path]) => `${method} ${path} is 405, with Allow`,
    async (api, [method, path, allow]) => {
      const reply = await api.send(method, path);
      expect([reply.status, reply.headers.get("Allow")]).toEqual([405, allow]);
    },
  ),
  {
    rule: "A job keeps the correlation id of its submission, and its agent gets it",
    async check(api) {
      await api.post("/execute/async", { code: "1" }, { "X-Correlation-ID": "order-1" });
      expect((await api.agent().takeJob()).correlation_id).toBe("order-1");
    },
  },
  {
    rule: "GET /openapi.json is OpenAPI 3.1 and has the service's version",
    async check(api) {
      const reply = await api.get("/openapi.json");
      expect(reply.headers.get("Content-Type")).toMatch(/^application\/json/);
      const { version } = body(await api.get("/health")) as { version: string };
      expect(body(reply)).toMatchObject({
        openapi: expect.stringMatching(/^3\.1\./) as string,
        info: { version },
      });
    },
  },
];
