import { createHash, randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { createClient } from "@libsql/client";
import { expect } from "vitest";
import { shell } from "../../store/audit.ts";
import { JoinReply } from "../../../shared/wire/agent/join.ts";
import { invite } from "../../agents/tokens.ts";
import { sha256 } from "../../hash.ts";
import { revokeToken } from "../../store/agents/agent-tokens.ts";
import { type Database, database } from "../../store/database.ts";
import type { Reply } from "../scripted-agent.ts";
import { type Api, body, problemOf } from "./api.ts";
import type { Row } from "./row.ts";
import { agentTokens } from "./servers.ts";

const minuteMs = 60_000;

/** Does what an operator's command does, over a separate connection. */
async function operate<T>(api: Api, work: (db: Database) => Promise<T>): Promise<T> {
  const client = createClient({ url: api.databaseUrl, concurrency: 1, timeout: 10_000 });
  try {
    return await work(database(client));
  } finally {
    client.close();
  }
}

const newCode = (api: Api, name: string | null = null, expiresInMs = minuteMs): Promise<string> =>
  operate(api, (db) => invite({ db, sha256 }, { name, expiresInMs }, shell("test", Date.now())));

const newToken = (): string => `ala_${randomBytes(32).toString("hex")}`;
const hashOf = (token: string): string => createHash("sha256").update(token).digest("hex");

const exchange = (api: Api, code: string, token: string, name = "a-host"): Promise<Reply> =>
  api.post("/agent/v1/join", { code, token_sha256: hashOf(token), name });

/** A token that a new agent has joined with, and its id. */
async function joined(api: Api): Promise<{ token: string; id: string }> {
  const token = newToken();
  const reply = await exchange(api, await newCode(api), token);
  return { token, id: JoinReply.parse(body(reply)).agent.id };
}

const pollStatus = async (api: Api, token: string): Promise<number> => {
  const agent = api.agent(token);
  const request = JSON.stringify(agent.pollRequest({ free_slots: 0 }));
  return (await agent.send("POST", "/poll", request)).status;
};

export const joinRows: Row[] = [
  {
    rule: "A join code is exchanged for an agent's own token, under the name that the code gives it",
    async check(api) {
      const [code, token] = [await newCode(api, "gpu-1"), newToken()];
      expect(await pollStatus(api, token)).toBe(401);
      const reply = await exchange(api, code, token);
      expect(reply.status).toBe(200);
      expect(JoinReply.parse(body(reply)).agent.name).toBe("gpu-1");
      expect(await pollStatus(api, token)).toBe(200);
      const other = await exchange(api, await newCode(api), newToken(), "its-own");
      expect(JoinReply.parse(body(other)).agent.name).toBe("its-own");
    },
  },
  {
    rule: "If many hosts exchange one join code, exactly one succeeds",
    async check(api) {
      const code = await newCode(api);
      const tokens = Array.from({ length: 6 }, newToken);
      const replies = await Promise.all(tokens.map((token) => exchange(api, code, token)));
      expect(replies.filter(({ status }) => status === 200)).toHaveLength(1);
      expect(replies.filter(({ status }) => status === 401)).toHaveLength(5);
      const polls = await Promise.all(tokens.map((token) => pollStatus(api, token)));
      expect(polls).toEqual(replies.map(({ status }) => status));
    },
  },
  {
    rule: "A repeated exchange gets the same answer, and no other exchange of its code succeeds",
    async check(api) {
      const [code, token] = [await newCode(api), newToken()];
      const first = await exchange(api, code, token);
      expect(body(await exchange(api, code, token))).toEqual(body(first));
      expect((await exchange(api, code, newToken())).status).toBe(401);
    },
  },
  {
    rule: "Unknown, expired and used join codes get the same refusal",
    async check(api) {
      const used = await newCode(api);
      await exchange(api, used, newToken());
      const codes = [`alj_${"0".repeat(40)}`, await newCode(api, null, -1), used];
      const replies = [];
      for (const code of codes) replies.push(await exchange(api, code, newToken()));
      expect(replies.map(({ status }) => status)).toEqual([401, 401, 401]);
      expect(new Set(replies.map((reply) => problemOf(reply).detail)).size).toBe(1);
      expect(problemOf(replies[0]!).detail).toContain("npm run agents -- invite");
    },
  },
  {
    rule: "A join code is not accepted as a token, nor a token as a join code",
    async check(api) {
      const [code, token] = [await newCode(api), newToken()];
      expect(await pollStatus(api, code)).toBe(401);
      const reply = await api.post("/agent/v1/join", {
        code: token,
        token_sha256: hashOf(token),
        name: "a-host",
      });
      expect(reply.status).toBe(400);
      expect(problemOf(reply).errors).toMatchObject([{ path: "code" }]);
      expect(reply.text).not.toContain(token);
      expect((await exchange(api, code, token)).status).toBe(200);
    },
  },
  {
    rule: "An agent's own token gives no access to another agent's leases or to client endpoints",
    server: "with keys",
    async check(api) {
      const [one, other] = [await joined(api), await joined(api)];
      const agent = api.agent(one.token);
      await agent.poll();
      const leave = JSON.stringify({ agent_id: agent.id, crashed: false });
      for (const token of [other.token, agentTokens[0]]) {
        expect((await api.agent(token).send("POST", "/leave", leave)).status).toBe(403);
      }
      const headers = { Authorization: `Bearer ${one.token}` };
      expect((await api.get("/executions", headers)).status).toBe(401);
    },
  },
  {
    rule: "A revoked token ends its agent's waiting poll, and its lease goes to another",
    server: "with short leases",
    async check(api) {
      const { token, id } = await joined(api);
      const agent = api.agent(token);
      const { job_id } = await api.submit();
      const { lease_id } = await agent.takeJob();
      const wait = agent.pollRequest({ free_slots: 0, wait_s: 60 });
      const waiting = agent.send("POST", "/poll", JSON.stringify(wait));
      await operate(api, (db) => revokeToken(db, id, shell("test", Date.now())));
      expect((await waiting).status).toBe(401);
      const again = await api.agent().takeJob();
      expect(again).toMatchObject({ execution_id: job_id, attempt: 2 });
      expect((await agent.result(lease_id)).status).toBe(401);
      expect(await pollStatus(api, token)).toBe(401);
    },
  },
  {
    rule: "A rotated token is valid until the new one is used; the agent keeps its leases",
    async check(api) {
      const [{ token }, next] = [await joined(api), newToken()];
      const agent = api.agent(token);
      await api.submit();
      const { lease_id } = await agent.takeJob();
      const order = JSON.stringify({ token_sha256: hashOf(next) });
      for (let time = 0; time < 2; time++) {
        expect((await agent.send("POST", "/rotate", order)).status).toBe(200);
      }
      expect(await pollStatus(api, token)).toBe(200);

      const heir = api.agent(next);
      expect((await heir.send("POST", "/rotate", order)).status).toBe(200);
      expect((await heir.post(lease_id, "started", { job_ref: null })).status).toBe(200);
      // A token that was just found is cached for a second.
      while ((await pollStatus(api, token)) === 200) await sleep(100);
      expect(await pollStatus(api, token)).toBe(401);
      expect((await heir.result(lease_id)).status).toBe(200);
    },
  },
  {
    rule: "A configured token cannot be rotated: 409",
    async check(api) {
      const order = JSON.stringify({ token_sha256: hashOf(newToken()) });
      expect((await api.agent().send("POST", "/rotate", order)).status).toBe(409);
    },
  },
  {
    rule: "After 30 attempts to join in a minute an address is refused with 429 and Retry-After",
    server: "in production",
    async check(api) {
      // Few at once: a burst may get 503s from a database on another process.
      for (let guesses = 0; guesses < 30; guesses += 6) {
        const some = Array.from({ length: 6 }, () =>
          exchange(api, `alj_${randomBytes(20).toString("hex")}`, newToken()),
        );
        expect((await Promise.all(some)).map(({ status }) => status)).toEqual(Array(6).fill(401));
      }
      const reply = await exchange(api, await newCode(api), newToken());
      expect(reply.status).toBe(429);
      expect(Number(reply.headers.get("Retry-After"))).toBeGreaterThan(0);
      expect(await pollStatus(api, agentTokens[0])).toBe(200);
    },
  },
];
