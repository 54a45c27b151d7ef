import { expect } from "vitest";
import type { Api } from "./api.ts";
import { each, type Row } from "./row.ts";
import { apiKeys } from "./servers.ts";

const key = { Authorization: `Bearer ${apiKeys[0]}` };

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
  ...each(
    foreign,
    (headers) => `Without keys a page of another site changes nothing: ${JSON.stringify(headers)}`,
    async (api, headers) => {
      const { job_id } = await api.submit();
      const stored = await api.newest();
      for (const path of [
        `/jobs/${job_id}/cancel`,
        `/jobs/${job_id}/rerun`,
        "/execute/async",
        "/job-types/ml/build",
      ]) {
        expect((await api.post(path, { code: "1" }, headers)).status).toBe(403);
      }
      expect((await api.send("DELETE", "/dlq/1", { headers })).status).toBe(403);
      expect(await api.newest()).toEqual(stored);
      expect(await api.job(job_id)).toMatchObject({ status: "queued" });
    },
  ),
  {
    rule: "Without keys, a page of another site can read nothing and does not count against the rate limit",
    async check(api) {
      for (const headers of foreign) {
        if (headers["Sec-Fetch-Mode"] === "navigate") continue;
        const reply = await api.get("/executions", headers);
        expect(reply.status).toBe(403);
        expect(reply.headers.has("RateLimit-Remaining")).toBe(false);
      }
    },
  },
  {
    rule: "Without keys, a link on another site to a page here works",
    async check(api) {
      const headers = { "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate" };
      expect((await api.get("/docs", headers)).status).toBe(200);
    },
  },
  {
    rule: "Without keys, the service's own page and programs are served",
    async check(api) {
      for (const headers of own(api)) {
        expect((await api.get("/executions", headers)).status).toBe(200);
        expect((await api.post("/execute/async", { code: "1" }, headers)).status).toBe(202);
      }
    },
  },
  {
    rule: "With keys, a page of another site that has a key is served",
    server: "with keys",
    async check(api) {
      for (const headers of [...foreign, evil]) {
        expect((await api.get("/executions", { ...key, ...headers })).status).toBe(200);
        expect((await api.get("/executions", headers)).status).toBe(401);
      }
    },
  },
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
  {
    rule: "Without keys, requests for a name in allowed_hosts are answered too, and no others",
    server: "behind a reverse proxy",
    async check(api) {
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
    },
  },
];
