import { expect } from "vitest";
import { endpointsOf, type OpenApiDocument } from "../openapi-document.ts";
import { type Api, body, notShared, problemOf } from "./api.ts";
import { each, on } from "./row.ts";
import { agentTokens, apiKeys, customHeader, operatorKey } from "./servers.ts";

const [key, otherKey] = apiKeys;
const bearer = (token: string): Record<string, string> => ({ Authorization: `Bearer ${token}` });

const guarded: [method: string, path: string][] = [
  ["POST", "/execute"],
  ["POST", "/execute/async"],
  ["GET", "/jobs/x"],
  ["GET", "/jobs/x/result"],
  ["POST", "/jobs/x/cancel"],
  ["GET", "/jobs/x/artifacts/a"],
  ["HEAD", "/jobs/x/artifacts/a"],
  ["GET", "/executions"],
  ["GET", "/executions/x"],
  ["GET", "/job-types"],
  ["GET", "/job-types/default"],
  ["GET", "/job-types/default/build"],
  ["POST", "/job-types/default/build"],
  ["GET", "/pool/stats"],
  ["GET", "/metrics"],
  ["GET", "/openapi.json"],
  ["GET", "/docs"],
  ["GET", "/nowhere"],
];

async function statusWith(api: Api, headers: Record<string, string>): Promise<number> {
  return (await api.get("/executions", headers)).status;
}

export const authRows = on("with keys", [
  ...each(
    guarded,
    ([method, path]) => `${method} ${path} without a key is 401 with WWW-Authenticate`,
    async (api, [method, path]) => {
      const reply = await api.send(method, path);
      expect(reply.status).toBe(401);
      expect(reply.headers.get("WWW-Authenticate")).toMatch(/^Bearer /);
    },
  ),
  {
    rule: "No shared cache may keep an answer of any endpoint, with a key or without, nor a stream",
    async check(api) {
      const document = body(await api.get("/openapi.json", bearer(operatorKey)));
      for (const { method, path } of endpointsOf(document as OpenApiDocument)) {
        const address = api.url + path.replaceAll(/\{\w+\}/g, "none");
        for (const headers of method === "GET" ? [bearer(operatorKey), {}] : [{}]) {
          const answer = await fetch(address, { method, headers });
          expect(answer.headers.get("Cache-Control"), `${method} ${path}`).toMatch(notShared);
          await answer.body?.cancel();
        }
      }
    },
  },
  {
    rule: "Two different keys in one request are 401; the same one twice is accepted",
    async check(api) {
      expect(await statusWith(api, { "X-API-Key": key, ...bearer(otherKey) })).toBe(401);
      expect(await statusWith(api, { "X-API-Key": key, ...bearer(key) })).toBe(200);
    },
  },
  {
    rule: "Each configured key is accepted, in X-API-Key or as Authorization: Bearer",
    async check(api) {
      for (const good of [key, otherKey]) {
        expect(await statusWith(api, { "X-API-Key": good })).toBe(200);
        expect(await statusWith(api, bearer(good))).toBe(200);
        expect(await statusWith(api, { Authorization: `bearer  ${good}` })).toBe(200);
      }
    },
  },
  {
    rule: "A valid key is accepted with any value in the other header",
    async check(api) {
      expect(await statusWith(api, { "X-API-Key": "wrong", ...bearer(key) })).toBe(200);
      expect(await statusWith(api, { "X-API-Key": key, ...bearer("wrong") })).toBe(200);
    },
  },
  {
    rule: "Anything else than a configured key gets 401, and is not repeated in the answer",
    async check(api) {
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
    },
  },
  {
    rule: "A request without a key is refused before its body is read",
    async check(api) {
      const { text: before } = await api.get("/executions", bearer(key));
      expect((await api.post("/execute/async", "{")).status).toBe(401);
      expect((await api.get("/executions", bearer(key))).text).toBe(before);
    },
  },
  {
    rule: "GET /health needs no key",
    async check(api) {
      for (const path of ["/health", "/health/live", "/health/ready"]) {
        expect((await api.get(path)).status).toBe(200);
        expect((await api.get(path, { "X-API-Key": "wrong" })).status).toBe(200);
      }
      expect((await api.get("/health/nowhere")).status).toBe(401);
    },
  },
  {
    rule: "An agent's token is not accepted as an API key, nor an API key as an agent's token",
    async check(api) {
      expect(await statusWith(api, bearer(agentTokens[0]))).toBe(401);
      expect(await statusWith(api, { "X-API-Key": agentTokens[0] })).toBe(401);
      const request = JSON.stringify(api.agent().pollRequest());
      for (const headers of [bearer(key), { "X-API-Key": key }, {}]) {
        expect((await api.post("/agent/v1/poll", request, headers)).status).toBe(401);
      }
      expect((await api.post("/agent/v1/poll", request, bearer(agentTokens[0]))).status).toBe(200);
    },
  },
  {
    rule: "The key's header can be configured; Authorization: Bearer is still accepted",
    server: "with a header of its own",
    async check(api) {
      expect(await statusWith(api, { [customHeader]: key })).toBe(200);
      expect(await statusWith(api, bearer(key))).toBe(200);
      expect(await statusWith(api, { "X-API-Key": key })).toBe(401);
      expect(await statusWith(api, {})).toBe(401);
    },
  },
  {
    rule: "With api_docs_public only the API description needs no key",
    server: "with a header of its own",
    async check(api) {
      const reply = await api.get("/openapi.json");
      expect(reply.status).toBe(200);
      expect(reply.text).toContain(`"name":"${customHeader}"`);
      expect((await api.get("/docs")).status).toBe(200);
      expect((await api.get("/pool/stats")).status).toBe(401);
      expect((await api.get("/metrics")).status).toBe(401);
    },
  },
]);
