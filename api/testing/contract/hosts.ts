import { createHash, randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { expect } from "vitest";
import { PoolAgent, PoolStats } from "../../../shared/wire/health.ts";
import { HostList, Invitation, type JoinedHost } from "../../../shared/wire/client/hosts.ts";
import { JoinReply } from "../../../shared/wire/agent/join.ts";
import { type Api, body, expectFault, problemOf } from "./api.ts";
import { each, type Row } from "./row.ts";
import { apiKeys, operatorKey } from "./servers.ts";

const operator = { "X-API-Key": operatorKey };

/** Lets a host join by the public interface. */
async function joined(api: Api, name: string): Promise<{ id: string; token: string }> {
  const reply = await api.post("/hosts/invitations", { name });
  expect(reply.status).toBe(201);
  const token = `ala_${randomBytes(32).toString("hex")}`;
  const token_sha256 = createHash("sha256").update(token).digest("hex");
  const { code } = Invitation.parse(body(reply));
  const answer = await api.post("/agent/v1/join", { code, token_sha256, name: "its-own" });
  return { id: JoinReply.parse(body(answer)).agent.id, token };
}

async function host(api: Api, id: string): Promise<JoinedHost | undefined> {
  return HostList.parse(body(await api.get("/hosts"))).hosts.find((one) => one.id === id);
}

async function stateOf(api: Api, id: string): Promise<string | undefined> {
  const { agents } = PoolStats.parse(body(await api.get("/pool/stats")));
  return agents.find((agent) => agent.id === id)?.state;
}

/** Without keys, only a service that nobody else reaches lets its clients manage hosts. */
const local = {
  only: { on: "node", why: "the service on workerd is open to its network" },
} as const;

const guarded: [method: string, path: string][] = [
  ["GET", "/hosts"],
  ["POST", "/hosts/invitations"],
  ["POST", "/hosts/x/revoke"],
  ["POST", "/hosts/x/rotate"],
  ["POST", "/agents/x/drain"],
  ["POST", "/agents/x/resume"],
];

export const hostRows: Row[] = [
  {
    ...local,
    rule: "A host joins with a code from POST /hosts/invitations, under the name that the code gives it",
    async check(api) {
      const { id, token } = await joined(api, "gpu-7");
      expect(await host(api, id)).toMatchObject({ name: "gpu-7", revoked_at: null, agents: [] });
      const agent = api.agent(token);
      await agent.poll({ free_slots: 0 });
      expect(await host(api, id)).toMatchObject({ agents: [agent.id] });
    },
  },
  {
    ...local,
    rule: "A code is valid for an hour unless expires_in_s says otherwise",
    async check(api) {
      const lifetimeS = async (request: object): Promise<number> => {
        const { expires_at } = Invitation.parse(
          body(await api.post("/hosts/invitations", request)),
        );
        return Math.round((Date.parse(expires_at) - Date.now()) / 60_000) * 60;
      };
      expect(await lifetimeS({})).toBe(3600);
      expect(await lifetimeS({ expires_in_s: 600 })).toBe(600);
      expectFault(await api.post("/hosts/invitations", { expires_in_s: 1 }), "expires_in_s");
      expectFault(await api.post("/hosts/invitations", { name: "a\u0007" }), "name");
    },
  },
  {
    ...local,
    rule: "A revoked host's token is void, and a repeat changes nothing",
    async check(api) {
      const { id, token } = await joined(api, "to-revoke");
      const agent = api.agent(token);
      await agent.poll({ free_slots: 0 });
      const first = await api.post(`/hosts/${id}/revoke`);
      expect(first.status).toBe(200);
      expect(body(first)).toMatchObject({ id, revoked_at: expect.any(String) as string });
      const poll = JSON.stringify(agent.pollRequest({ free_slots: 0 }));
      while ((await agent.send("POST", "/poll", poll)).status !== 401) await sleep(100);
      const { revoked_at } = body(first) as JoinedHost;
      expect(body(await api.post(`/hosts/${id}/revoke`))).toMatchObject({ revoked_at });
    },
  },
  {
    ...local,
    rule: "After POST /hosts/{id}/rotate, the waiting poll of the host's agent and every later one is answered with `rotate`, until the new token is used",
    async check(api) {
      const { id, token } = await joined(api, "to-rotate");
      const agent = api.agent(token);
      expect(await agent.poll({ free_slots: 0 })).not.toHaveProperty("rotate");
      const waiting = agent.poll({ free_slots: 0, wait_s: 20 });
      const asked = await api.post(`/hosts/${id}/rotate`);
      expect(body(asked)).toMatchObject({ id, rotation_asked_at: expect.any(String) as string });
      expect(await waiting).toMatchObject({ rotate: true });

      const next = `ala_${randomBytes(32).toString("hex")}`;
      const token_sha256 = createHash("sha256").update(next).digest("hex");
      const order = JSON.stringify({ token_sha256 });
      expect((await agent.send("POST", "/rotate", order)).status).toBe(200);
      expect(await host(api, id)).toHaveProperty("rotation_asked_at");
      const heir = api.agent(next);
      expect(await heir.poll({ free_slots: 0 })).not.toHaveProperty("rotate");
      expect(await host(api, id)).not.toHaveProperty("rotation_asked_at");
    },
  },
  {
    ...local,
    rule: "POST /hosts/{id}/rotate of a revoked host is 409, of an unknown one 404",
    async check(api) {
      const { id } = await joined(api, "revoked-before");
      await api.post(`/hosts/${id}/revoke`);
      expect((await api.post(`/hosts/${id}/rotate`)).status).toBe(409);
      expect((await api.post("/hosts/none/rotate")).status).toBe(404);
    },
  },
  {
    ...local,
    rule: "A drained agent gets no new job and may end what it runs, until it is resumed",
    async check(api) {
      const agent = api.agent();
      await api.submit();
      const job = await agent.takeJob();
      const reply = await api.post(`/agents/${agent.id}/drain`);
      expect(PoolAgent.parse(body(reply))).toMatchObject({ id: agent.id, state: "draining" });
      const { job_id } = await api.submit();
      expect((await agent.poll({ leases: [job.lease_id], wait_s: 0 })).jobs).toEqual([]);
      const { jobs } = await agent.resultAndTake(job.lease_id);
      expect(jobs).toEqual([]);
      expect((await api.job(job_id)).status).toBe("queued");
      expect(body(await api.post(`/agents/${agent.id}/resume`))).toMatchObject({ state: "idle" });
      expect((await agent.takeJob()).execution_id).toBe(job_id);
    },
  },
  {
    ...local,
    rule: "POST /execute is 503 while every agent is draining",
    async check(api) {
      const agent = api.agent();
      await agent.poll({ free_slots: 0 });
      await api.post(`/agents/${agent.id}/drain`);
      expect(await stateOf(api, agent.id)).toBe("draining");
      const reply = await api.post("/execute", { code: "print(1)" });
      expect(reply.status).toBe(503);
      expect(problemOf(reply).detail).toContain("draining");
    },
  },
  ...each(
    ["/hosts/none/revoke", "/agents/none/drain", "/agents/none/resume"],
    (path) => `POST ${path} is 404`,
    async (api, path) => {
      expect((await api.post(path, undefined, operator)).status).toBe(404);
    },
    { server: "with keys" },
  ),
  ...each(
    guarded,
    ([method, path]) => `${method} ${path} is 403 with a key that is not an operator's`,
    async (api, [method, path]) => {
      const reply = await api.send(method, path, { headers: { "X-API-Key": apiKeys[0] } });
      expect(reply.status).toBe(403);
      expect(problemOf(reply).detail).toContain("operator_keys");
    },
    { server: "with keys" },
  ),
  {
    rule: "A service without keys that is open to its network lets nobody manage hosts",
    only: { on: "workerd", why: "the tests' service on Node is on loopback" },
    async check(api) {
      const reply = await api.post("/hosts/invitations", {});
      expect(reply.status).toBe(403);
      expect(problemOf(reply).detail).toContain("operator_keys");
    },
  },
  {
    rule: "An operator's key manages hosts, and is accepted wherever an API key is",
    server: "with keys",
    async check(api) {
      expect((await api.post("/hosts/invitations", {}, operator)).status).toBe(201);
      expect((await api.get("/hosts", operator)).status).toBe(200);
      expect((await api.get("/executions", operator)).status).toBe(200);
    },
  },
];
