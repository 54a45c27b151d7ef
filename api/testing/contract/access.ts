import { setTimeout as sleep } from "node:timers/promises";
import { expect } from "vitest";
import { type ProblemCode, problemCodes } from "../../../shared/wire/errors.ts";
import { endpointsOf, type OpenApiDocument } from "../openapi-document.ts";
import type { Reply } from "../scripted-agent.ts";
import {
  agentTokens,
  type Api,
  apiKeys,
  body,
  customHeader,
  notShared,
  on,
  operatorKey,
  problemOf,
  type Row,
  test,
} from "./api.ts";

const [key, otherKey] = apiKeys;
const bearer = (token: string): Record<string, string> => ({ Authorization: `Bearer ${token}` });

async function statusWith(api: Api, headers: Record<string, string>): Promise<number> {
  return (await api.get("/executions", headers)).status;
}

export const authRows = on("with keys", [
  test("Each endpoint, and a path that is none, is 401 with WWW-Authenticate without a key", async (api) => {
    const document = body(await api.get("/openapi.json", bearer(operatorKey)));
    const endpoints = endpointsOf(document as OpenApiDocument);
    const guarded = endpoints.filter(({ path }) => !path.startsWith("/health"));
    for (const { method, path } of [...guarded, { method: "GET", path: "/nowhere" }]) {
      const reply = await api.send(method, path.replaceAll(/\{\w+\}/g, "x"));
      expect([path, reply.status]).toEqual([path, 401]);
      expect(reply.headers.get("WWW-Authenticate")).toMatch(/^Bearer /);
    }
  }),
  test("No shared cache may keep an answer of any endpoint, with a key or without, nor a stream", async (api) => {
    const document = body(await api.get("/openapi.json", bearer(operatorKey)));
    for (const { method, path } of endpointsOf(document as OpenApiDocument)) {
      const address = api.url + path.replaceAll(/\{\w+\}/g, "none");
      for (const headers of method === "GET" ? [bearer(operatorKey), {}] : [{}]) {
        const answer = await fetch(address, { method, headers });
        expect(answer.headers.get("Cache-Control"), `${method} ${path}`).toMatch(notShared);
        await answer.body?.cancel();
      }
    }
  }),
  test("Two different keys in one request are 401; the same one twice is accepted", async (api) => {
    expect(await statusWith(api, { "X-API-Key": key, ...bearer(otherKey) })).toBe(401);
    expect(await statusWith(api, { "X-API-Key": key, ...bearer(key) })).toBe(200);
  }),
  test("Each configured key is accepted, in X-API-Key or as Authorization: Bearer", async (api) => {
    for (const good of [key, otherKey]) {
      expect(await statusWith(api, { "X-API-Key": good })).toBe(200);
      expect(await statusWith(api, bearer(good))).toBe(200);
      expect(await statusWith(api, { Authorization: `bearer  ${good}` })).toBe(200);
    }
  }),
  test("A valid key is accepted with any value in the other header", async (api) => {
    expect(await statusWith(api, { "X-API-Key": "wrong", ...bearer(key) })).toBe(200);
    expect(await statusWith(api, { "X-API-Key": key, ...bearer("wrong") })).toBe(200);
  }),
  test("Anything else than a configured key gets 401, and is not repeated in the answer", async (api) => {
    const wrong = [
      "",
      "wrong",
      key.slice(0, -1),
      `${key}x`,
      key.toUpperCase(),
      `${key},${otherKey}`,
    ];
    for (const value of wrong) {
      for (const headers of [{ "X-API-Key": value }, bearer(value)]) {
        const reply = await api.get("/executions", headers);
        expect(reply.status).toBe(401);
        if (value !== "") expect(problemOf(reply).detail).not.toContain(value);
      }
    }
    expect(await statusWith(api, { Authorization: `Basic ${btoa(`a:${key}`)}` })).toBe(401);
    expect(await statusWith(api, { Authorization: key })).toBe(401);
    expect((await api.get(`/executions?api_key=${key}`)).status).toBe(401);
  }),
  test("A request without a key is refused before its body is read", async (api) => {
    const { text: before } = await api.get("/executions", bearer(key));
    expect((await api.post("/execute/async", "{")).status).toBe(401);
    expect((await api.get("/executions", bearer(key))).text).toBe(before);
  }),
  test("GET /health needs no key", async (api) => {
    for (const path of ["/health", "/health/live", "/health/ready"]) {
      expect((await api.get(path)).status).toBe(200);
      expect((await api.get(path, { "X-API-Key": "wrong" })).status).toBe(200);
    }
    expect((await api.get("/health/nowhere")).status).toBe(401);
  }),
  test("An agent's token is not accepted as an API key, nor an API key as an agent's token", async (api) => {
    expect(await statusWith(api, bearer(agentTokens[0]))).toBe(401);
    expect(await statusWith(api, { "X-API-Key": agentTokens[0] })).toBe(401);
    const request = JSON.stringify(api.agent().pollRequest());
    for (const headers of [bearer(key), { "X-API-Key": key }, {}]) {
      expect((await api.post("/agent/v1/poll", request, headers)).status).toBe(401);
    }
    expect((await api.post("/agent/v1/poll", request, bearer(agentTokens[0]))).status).toBe(200);
  }),
  ...on("with a header of its own", [
    test("The key's header can be configured; Authorization: Bearer is still accepted", async (api) => {
      expect(await statusWith(api, { [customHeader]: key })).toBe(200);
      expect(await statusWith(api, bearer(key))).toBe(200);
      expect(await statusWith(api, { "X-API-Key": key })).toBe(401);
      expect(await statusWith(api, {})).toBe(401);
    }),
    test("With api_docs_public only the API description needs no key", async (api) => {
      const reply = await api.get("/openapi.json");
      expect(reply.status).toBe(200);
      expect(reply.text).toContain(`"name":"${customHeader}"`);
      expect((await api.get("/docs")).status).toBe(200);
      expect((await api.get("/pool/stats")).status).toBe(401);
      expect((await api.get("/metrics")).status).toBe(401);
    }),
  ]),
]);

const uuid = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;

async function echoed(api: Api, given: string): Promise<string> {
  const reply = await api.get("/health", { "X-Correlation-ID": given });
  return reply.headers.get("X-Correlation-ID") ?? "";
}

/** A request for each way in which an answer is made; of a refusal also its code, and whether it names the job. */
const requests: [
  status: number,
  (api: Api, id: string) => Promise<Reply>,
  code?: ProblemCode,
  job?: "names the job",
][] = [
  [200, (api, id) => api.get(`/jobs/${id}`)],
  [202, (api) => api.post("/execute/async", { code: "1" })],
  [200, (api, id) => api.get(`/jobs/${id}/artifacts/_code.py`)],
  [200, (api, id) => api.send("HEAD", `/jobs/${id}/artifacts/_code.py`)],
  [304, (api, id) => api.get(`/jobs/${id}/artifacts/_code.py`, { "If-None-Match": "*" })],
  [200, (api) => api.get("/executions")],
  [200, (api) => api.get("/openapi.json")],
  [400, (api) => api.post("/execute", "{"), "invalid_request"],
  [401, (api) => api.post("/agent/v1/poll", {}), "unauthorized"],
  [404, (api) => api.get("/nowhere"), "not_found"],
  [404, (api) => api.get("/jobs/x"), "not_found"],
  [404, (api, id) => api.get(`/jobs/${id}/artifacts/none`), "not_found", "names the job"],
  [405, (api) => api.send("PATCH", "/health"), "method_not_allowed"],
  [
    408,
    (api, id) => api.get(`/jobs/${id}/result?wait=true&timeout=0`),
    "wait_timeout",
    "names the job",
  ],
  [422, (api) => api.post("/execute", { code: "1", timeout: 80_000 }), "timeout_too_long"],
  [503, (api) => api.post("/execute", { code: "1" }), "unavailable"],
];

export const answerRows: Row[] = [
  test("Every answer has the security headers and a correlation id; a refusal has a code, and names the job that it is about", async (api) => {
    const { job_id } = await api.submit();
    for (const [status, send, code, job] of requests) {
      // Api.send checks the headers of every answer.
      const reply = await send(api, job_id);
      expect(reply.status).toBe(status);
      if (code === undefined) continue;
      const problem = problemOf(reply);
      expect(problem).toMatchObject({ status, code });
      expect(problem.job_id).toBe(job && job_id);
    }
  }),
  test("The type of a refusal is an address on a page that explains every code", async (api) => {
    const { type } = problemOf(await api.get("/jobs/x"));
    const reply = await api.get(type);
    expect([reply.status, reply.headers.get("Content-Type")]).toEqual([
      200,
      "text/html; charset=UTF-8",
    ]);
    for (const code of problemCodes) expect(reply.text).toContain(`id="${code}"`);
  }),
  test("A correlation id of up to 128 letters, digits and .:/+=@-_ is echoed; any other is replaced", async (api) => {
    for (const id of ["a", "req-1", "0a1B2c.:/+=@-_", "x".repeat(128)])
      expect(await echoed(api, id)).toBe(id);
    const bad = ["", " ", "a b", "a,b", "é", '"', "a;b", "<script>", "[a]"];
    for (const id of [...bad, "x".repeat(129), "x".repeat(10_000)])
      expect([id, await echoed(api, id)]).toEqual([id, expect.stringMatching(uuid)]);
  }),
  test("Each request without a correlation id gets a new one, which a refusal's body shows too", async (api) => {
    const replies = [await api.get("/nowhere"), await api.get("/nowhere")];
    const ids = replies.map((reply) => problemOf(reply).correlation_id);
    expect(ids[0]).toMatch(uuid);
    expect(ids[0]).not.toBe(ids[1]);
  }),
  test("A method that a path does not have is 405, with Allow", async (api) => {
    for (const [method, path, allow] of [
      ["PUT", "/execute", "POST"],
      ["GET", "/execute", "POST"],
      ["OPTIONS", "/execute/async", "POST"],
      ["DELETE", "/jobs/x", "GET, HEAD"],
      ["POST", "/jobs/x/artifacts/a/b.txt", "GET, HEAD"],
      ["PATCH", "/job-types/default/build", "GET, HEAD, POST"],
      ["POST", "/health", "GET, HEAD"],
      ["GET", "/dlq/1", "DELETE"],
    ] as const) {
      const reply = await api.send(method, path);
      expect([path, reply.status, reply.headers.get("Allow")]).toEqual([path, 405, allow]);
    }
  }),
  test("A job keeps the correlation id of its submission, and its agent gets it", async (api) => {
    await api.post("/execute/async", { code: "1" }, { "X-Correlation-ID": "order-1" });
    expect((await api.agent().takeJob()).correlation_id).toBe("order-1");
  }),
  test("GET /openapi.json is OpenAPI 3.1 and has the service's version", async (api) => {
    const reply = await api.get("/openapi.json");
    expect(reply.headers.get("Content-Type")).toMatch(/^application\/json/);
    const { version } = body(await api.get("/health")) as { version: string };
    expect(body(reply)).toMatchObject({
      openapi: expect.stringMatching(/^3\.1\./) as string,
      info: { version },
    });
  }),
];

const keyHeader = { Authorization: `Bearer ${apiKeys[0]}` };

/** Headers that browsers send with requests of pages of other sites. */
const foreign: Record<string, string>[] = [
  { "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors" },
  { "Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors" },
  { "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate" },
  { Origin: "http://evil.example" },
  { Origin: "null" },
  { Origin: "http://localhost:1" },
];

/** Headers of the service's own page, of a typed address, and of programs. */
const own = ({ url }: Api): Record<string, string>[] => [
  { "Sec-Fetch-Site": "same-origin", Origin: url },
  { "Sec-Fetch-Site": "none" },
  { Origin: url },
  {},
];

const evil = { Host: "evil.example" };

export const foreignPageRows: Row[] = [
  test("Without keys a page of another site changes nothing", async (api) => {
    const { job_id } = await api.submit();
    const stored = await api.newest();
    for (const headers of foreign) {
      for (const path of [
        `/jobs/${job_id}/cancel`,
        `/jobs/${job_id}/rerun`,
        "/execute/async",
        "/job-types/ml/build",
      ]) {
        const { status } = await api.post(path, { code: "1" }, headers);
        expect([headers, path, status]).toEqual([headers, path, 403]);
      }
      expect((await api.send("DELETE", "/dlq/1", { headers })).status).toBe(403);
    }
    expect(await api.newest()).toEqual(stored);
    expect(await api.job(job_id)).toMatchObject({ status: "queued" });
  }),
  test("Without keys, a page of another site can read nothing and does not count against the rate limit", async (api) => {
    for (const headers of foreign) {
      if (headers["Sec-Fetch-Mode"] === "navigate") continue;
      const reply = await api.get("/executions", headers);
      expect(reply.status).toBe(403);
      expect(reply.headers.has("RateLimit-Remaining")).toBe(false);
    }
  }),
  test("Without keys, a link on another site to a page here works", async (api) => {
    const headers = { "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate" };
    expect((await api.get("/docs", headers)).status).toBe(200);
  }),
  test("Without keys, the service's own page and programs are served", async (api) => {
    for (const headers of own(api)) {
      expect((await api.get("/executions", headers)).status).toBe(200);
      expect((await api.post("/execute/async", { code: "1" }, headers)).status).toBe(202);
    }
  }),
  ...on("with keys", [
    test("With keys, a page of another site that has a key is served", async (api) => {
      for (const headers of [...foreign, evil]) {
        expect((await api.get("/executions", { ...keyHeader, ...headers })).status).toBe(200);
        expect((await api.get("/executions", headers)).status).toBe(401);
      }
    }),
  ]),
  {
    rule: "Without keys on loopback, only requests for a loopback host are answered",
    only: { on: "node", why: "a worker has no address of its own" },
    async check(api) {
      for (const Host of ["evil.example", "localhost.evil.example", "0.0.0.0", "10.0.0.1:8080"]) {
        for (const path of ["/executions", "/docs", "/health", "/metrics", "/openapi.json"]) {
          const reply = await api.get(path, { Host });
          expect(reply.status).toBe(403);
          expect(reply.text).toContain("allowed_hosts");
        }
        expect((await api.post("/execute/async", { code: "1" }, { Host })).status).toBe(403);
      }
      for (const Host of ["localhost", "LOCALHOST:99", "127.0.0.2", "[::1]:8080", "a.localhost"]) {
        expect((await api.get("/executions", { Host })).status).toBe(200);
      }
    },
  },
  ...on("with a short queue", [
    test("Without keys, requests for a name in allowed_hosts are answered too, and no others", async (api) => {
      for (const Host of ["tools.example", "tools.example:8443", "localhost"]) {
        expect((await api.get("/executions", { Host })).status).toBe(200);
      }
      // A proxy may keep the Host header or replace it with this service's name.
      for (const headers of [{ Host: "tools.example" }, {}]) {
        const Origin = "https://tools.example";
        const reply = await api.post("/execute/async", { code: "1" }, { ...headers, Origin });
        expect(reply.status).toBe(202);
      }
      for (const Host of ["evil.example", "x.tools.example"]) {
        expect((await api.get("/executions", { Host })).status).toBe(403);
      }
    }),
  ]),
];

/** The keys of the rows. The first key is for cleaning up after them. */
const otherKeyHeader = { "X-API-Key": apiKeys[1] };

/** Requests left according to an answer; NaN if it does not say. */
const left = ({ headers }: Reply): number => Number(headers.get("RateLimit-Remaining") ?? NaN);

function expectRefused(reply: Reply): void {
  expect(reply.status).toBe(429);
  expect(problemOf(reply).detail).toContain("Retry-After");
  const seconds = Number(reply.headers.get("Retry-After"));
  expect(seconds).toBeGreaterThan(0);
  expect(seconds).toBeLessThanOrEqual(60);
  expect(left(reply)).toBe(0);
}

/** One after the other: the database of a Worker refuses some requests of a burst, and they count too. */
async function expectSpent(api: Api, headers: Record<string, string>, limit: number) {
  for (let spent = 0; spent < limit; spent++) {
    expect((await api.get("/nowhere", headers)).status).toBe(404);
  }
  expectRefused(await api.get("/pool/stats", headers));
}

export const rateLimitRows: Row[] = [
  ...on("with the rate limit of the contract", [
    test("Each key has 120 requests in 60 s; then every request is 429 with Retry-After", async (api) => {
      const first = await api.get("/pool/stats", otherKeyHeader);
      expect(first.headers.get("RateLimit-Limit")).toBe("120");
      expect(first.headers.get("RateLimit-Policy")).toBe("120;w=60");
      expect(left(first)).toBe(119);
      expect(left(await api.get("/executions", otherKeyHeader))).toBe(118);
      await expectSpent(api, otherKeyHeader, 118);
      expectRefused(await api.post("/execute", { code: "1" }, otherKeyHeader));
      expectRefused(await api.get("/nowhere", otherKeyHeader));

      const other = await api.get("/pool/stats", { "X-API-Key": apiKeys[0] });
      expect(other.status).toBe(200);
    }),
    test("Requests without a valid key are counted per client address", async (api) => {
      const replies = [
        await api.get("/pool/stats"),
        await api.get("/pool/stats", { "X-API-Key": "wrong-key-0123456789" }),
        await api.get("/pool/stats", { "X-Forwarded-For": "192.0.2.7" }),
      ];
      expect(replies.map(({ status }) => status)).toEqual([401, 401, 401]);
      const [a = 0, b, c] = replies.map(left);
      expect([b, c]).toEqual([a - 1, a - 2]);
    }),
    test("/health, its probes and agents are not counted", async (api) => {
      const agent = api.agent();
      const before = left(await api.get("/pool/stats"));
      const replies = [
        await api.get("/health"),
        await api.get("/health/live"),
        await api.get("/health/ready"),
        await agent.send("POST", "/poll", JSON.stringify(agent.pollRequest())),
        await agent.send("POST", "/renew", JSON.stringify(agent.status())),
      ];
      expect(replies.map(({ status }) => status)).toEqual([200, 200, 200, 200, 200]);
      expect(replies.filter(({ headers }) => headers.has("RateLimit-Limit"))).toEqual([]);
      // What is left for this address; it is more if the window has ended meanwhile.
      expect(left(await api.get("/pool/stats"))).toBeGreaterThanOrEqual(before - 1);
    }),
    test("The rate limit counts each message of a batch to /mcp", async (api) => {
      const own = { "X-API-Key": operatorKey };
      const sendPings = (count: number) => {
        const pings = Array.from({ length: count }, (_, id) => ({
          jsonrpc: "2.0",
          id,
          method: "ping",
        }));
        return api.post("/mcp", pings, { ...own, Accept: "application/json, text/event-stream" });
      };
      const before = left(await api.get("/pool/stats", own));
      expect((await sendPings(3)).status).toBe(200);
      expect(left(await api.get("/pool/stats", own))).toBe(before - 4);
      expect((await sendPings(100)).status).toBe(200);
      expectRefused(await sendPings(100));
    }),
  ]),
  ...on("with a short window", [
    test("After its window a client is served again", async (api) => {
      const [limit, windowS] = [20, 3];
      const beganMs = performance.now();
      let served = 0;
      let refused: Reply | undefined;
      // On a slow machine a burst may last beyond the end of a window.
      while (refused === undefined) {
        const burst = Array.from({ length: 80 }, () => api.get("/pool/stats", otherKeyHeader));
        const replies = await Promise.all(burst);
        served += replies.filter(({ status }) => status === 200).length;
        refused = replies.findLast(({ status }) => status === 429);
      }
      // A window may end at the first request, and another one may begin at the last.
      const windows = Math.floor((performance.now() - beganMs) / 1000 / windowS) + 2;
      expect(served).toBeLessThanOrEqual(limit * windows);

      expect(refused.headers.get("RateLimit-Policy")).toBe(`${limit};w=${windowS}`);
      const retryAfterS = Number(refused.headers.get("Retry-After"));
      expect(retryAfterS).toBeGreaterThan(0);
      expect(retryAfterS).toBeLessThanOrEqual(windowS);
      await sleep(1000 * retryAfterS + 50);
      expect((await api.get("/pool/stats", otherKeyHeader)).status).toBe(200);
    }),
  ]),
];
