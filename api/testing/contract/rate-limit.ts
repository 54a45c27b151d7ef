import { setTimeout as sleep } from "node:timers/promises";
import { expect } from "vitest";
import type { Reply } from "../scripted-agent.ts";
import { type Api, problemOf } from "./api.ts";
import type { Row } from "./row.ts";
import { apiKeys, operatorKey } from "./servers.ts";

/** The keys of the rows. The first key is for cleaning up after them. */
const key = { "X-API-Key": apiKeys[1] };

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
  {
    rule: "Each key has 120 requests in 60 s; then every request is 429 with Retry-After",
    server: "with the rate limit of the contract",
    async check(api) {
      const first = await api.get("/pool/stats", key);
      expect(first.headers.get("RateLimit-Limit")).toBe("120");
      expect(first.headers.get("RateLimit-Policy")).toBe("120;w=60");
      expect(left(first)).toBe(119);
      expect(left(await api.get("/executions", key))).toBe(118);
      await expectSpent(api, key, 118);
      expectRefused(await api.post("/execute", { code: "1" }, key));
      expectRefused(await api.get("/nowhere", key));

      const other = await api.get("/pool/stats", { "X-API-Key": apiKeys[0] });
      expect(other.status).toBe(200);
    },
  },
  {
    rule: "Requests without a valid key are counted per client address",
    server: "with the rate limit of the contract",
    async check(api) {
      const replies = [
        await api.get("/pool/stats"),
        await api.get("/pool/stats", { "X-API-Key": "wrong-key-0123456789" }),
        await api.get("/pool/stats", { "X-Forwarded-For": "192.0.2.7" }),
      ];
      expect(replies.map(({ status }) => status)).toEqual([401, 401, 401]);
      const [a = 0, b, c] = replies.map(left);
      expect([b, c]).toEqual([a - 1, a - 2]);
    },
  },
  {
    rule: "/health, its probes and agents are not counted",
    server: "with the rate limit of the contract",
    async check(api) {
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
    },
  },
  {
    rule: "The rate limit counts each message of a batch to /mcp",
    server: "with the rate limit of the contract",
    async check(api) {
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
    },
  },
  {
    rule: "After its window a client is served again",
    server: "with a short window",
    async check(api) {
      const [limit, windowS] = [20, 3];
      const beganMs = performance.now();
      let served = 0;
      let refused: Reply;
      // On a slow machine a burst may last beyond the end of a window.
      do {
        const burst = Array.from({ length: 80 }, () => api.get("/pool/stats", key));
        const replies = await Promise.all(burst);
        served += replies.filter(({ status }) => status === 200).length;
        refused = await api.get("/pool/stats", key);
      } while (refused.status !== 429);
      // A window may end at the first request, and another one may begin at the last.
      const windows = Math.floor((performance.now() - beganMs) / 1000 / windowS) + 2;
      expect(served).toBeLessThanOrEqual(limit * windows);

      expect(refused.headers.get("RateLimit-Policy")).toBe(`${limit};w=${windowS}`);
      const retryAfterS = Number(refused.headers.get("Retry-After"));
      expect(retryAfterS).toBeGreaterThan(0);
      expect(retryAfterS).toBeLessThanOrEqual(windowS);
      await sleep(1000 * retryAfterS + 50);
      expect((await api.get("/pool/stats", key)).status).toBe(200);
    },
  },
];
