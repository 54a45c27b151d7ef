import { createHash, randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { createClient } from "@libsql/client";
import { expect } from "vitest";
import { HostList, Invitation, type JoinedHost, JoinReply } from "../../../shared/wire/access.ts";
import { PoolAgent, PoolStats } from "../../../shared/wire/health.ts";
import { protocolHeader, protocolVersion } from "../../../shared/wire/leases.ts";
import { invite, revokeToken } from "../../agents/agents.ts";
import { sha256 } from "../../ids.ts";
import { type Database, database } from "../../store/database.ts";
import { shell } from "../../tenants/sql.ts";
import type { Reply, ScriptedAgent } from "../scripted-agent.ts";
import {
  agentTokens,
  type Api,
  body,
  digest,
  dockerError,
  expectFault,
  failure,
  log,
  on,
  operatorKey,
  problemOf,
  release,
  type Row,
  test,
  working,
} from "./api.ts";

export const agentRows: Row[] = [
  test("An agent's request without its token as a Bearer is 401", async (api) => {
    for (const given of [
      "",
      "Bearer",
      "Bearer wrong-token-0123456789",
      `Basic ${btoa(agentTokens[0])}`,
      agentTokens[0],
    ]) {
      const headers = given ? { Authorization: given } : {};
      const paths = ["/poll", "/renew", "/leave", "/leases/x/result", "/nowhere"];
      const replies = paths.map((path) => api.post(`/agent/v1${path}`, {}, headers));
      for (const path of ["/leases/x/artifacts/a", "/builds/x/image"])
        replies.push(api.send("PUT", `/agent/v1${path}`, { headers, body: "" }));
      for (const path of ["", "/archive"])
        replies.push(api.get(`/agent/v1/images/${digest(1)}${path}`, headers));
      for (const reply of await Promise.all(replies)) {
        expect([given, reply.status]).toEqual([given, 401]);
        expect(reply.headers.get("WWW-Authenticate")).toMatch(/^Bearer /);
      }
    }
  }),
  test("An agent that presents a different token than before gets 403", async (api) => {
    const agent = await api.connected();
    const thief = api.agent(agentTokens[1]);
    const request = agent.pollRequest({ free_slots: 1 });
    for (const path of ["/poll", "/renew"]) {
      expect((await thief.send("POST", path, JSON.stringify(request))).status).toBe(403);
    }
    const leave = JSON.stringify({ agent_id: agent.id, crashed: false });
    expect((await thief.send("POST", "/leave", leave)).status).toBe(403);
    expect((await api.get("/pool/stats")).text).toContain(agent.id);
  }),
  test("A waiting agent gets a queued job at once", async (api) => {
    const [agent, other] = [api.agent(), api.agent()];
    const waiting = agent.poll({ wait_s: 20 });
    const { job_id } = await api.submit();
    // A poll that is not woken looks again after five seconds; this one must answer after three.
    const idle = other.poll({ free_slots: 0, wait_s: 3 });
    const first = await Promise.race([waiting, idle]);
    expect(first.jobs.map((job) => job.execution_id)).toEqual([job_id]);
    expect((await idle).jobs).toEqual([]);
  }),
  test("A leased job has everything that its agent needs", async (api) => {
    const { job_id } = await api.submit({
      code: "print(1)",
      input_data: { a: [1.0] },
      timeout: 5,
      startup_timeout: 20,
      requirements: ["numpy"],
    });
    expect(await api.agent().takeJob()).toMatchObject({
      execution_id: job_id,
      attempt: 1,
      job_type: { name: "default", cpu_limit: 1, network: "none" },
      image: "python:3.13-slim",
      code: "print(1)",
      input_json: '{"a":[1]}',
      requirements: [],
      timeout_s: 5,
      startup_timeout_s: 20,
      caps: { stream_bytes: 1024 * 1024, artifact_bytes: 100_000 },
    });
  }),
  test("A new agent is asked to keep containers ready for the default job type and recently used ones", async (api) => {
    const told = async (is_new: boolean) =>
      (await api.agent().poll({ is_new })).keep_ready.map(({ job_type }) => job_type.name);
    expect(await told(true)).toContain("default");
    await api.submit({ job_type: "ml" });
    expect(await told(false)).toEqual([]);
    expect(await told(true)).toEqual(["default", "ml"]);
    expect((await api.agent().poll({ is_new: true })).keep_ready[1]).toMatchObject({
      job_type: { name: "ml", memory_limit: "1g" },
      image: "python:3.13-slim",
    });
  }),
  test("Jobs are leased in order of submission, and never more than there are free slots", async (api) => {
    const jobs = [await api.submit(), await api.submit(), await api.submit()];
    const agent = api.agent();
    expect((await agent.poll({ free_slots: 0 })).jobs).toEqual([]);
    const first = await agent.poll({ free_slots: 2 });
    const second = await agent.poll({ free_slots: 4 });
    const leased = [first, second].map((reply) => reply.jobs.map((job) => job.execution_id));
    expect(leased).toEqual([[jobs[0]?.job_id, jobs[1]?.job_id], [jobs[2]?.job_id]]);
  }),
  test("A lease whose reply was lost is delivered again, to the same agent and within its free slots", async (api) => {
    await api.submit();
    const agent = api.agent();
    const job = await agent.takeJob();
    agent.held.delete(job.lease_id);
    expect((await agent.poll({ free_slots: 0 })).jobs).toEqual([]);
    expect((await api.agent().poll()).jobs).toEqual([]);
    expect((await agent.poll()).jobs).toEqual([job]);
    expect((await agent.poll()).jobs).toEqual([]);
    await agent.post(job.lease_id, "started", { job_ref: null });
    expect((await agent.poll({ leases: [] })).jobs).toEqual([]);
  }),
  test("A renewed lease is not reported as lost; an expired lease is", async (api) => {
    const { agent, lease_id } = await working(api);
    expect((await agent.renew()).lost).toEqual([]);
    const stranger = crypto.randomUUID();
    expect((await agent.renew({ leases: [lease_id, stranger] })).lost).toEqual([stranger]);
    await release(agent, lease_id);
    const poll = await agent.poll({ wait_s: 20, free_slots: 0 });
    expect(poll.lost).toEqual([lease_id]);
  }),
  test("The API sends its agents the intervals", async (api) => {
    const { intervals } = await api.agent().renew();
    expect(intervals).toEqual({ poll_wait_s: 25, lease_ttl_s: 180, renew_every_s: 7.5 });
  }),
  ...on("with short leases", [
    test("A lease that is not renewed goes to another agent; lost twice, the job ends as internal_error", async (api) => {
      const { agent, job_id, lease_id } = await working(api);
      await agent.post(lease_id, "started", { job_ref: null });
      await agent.upload(lease_id, "a.txt", "first");
      const second = api.agent();
      const again = await second.takeJob();
      await second.post(again.lease_id, "logs", { parts: [log(0, "last words")] });
      expect(again).toMatchObject({ execution_id: job_id, attempt: 2 });
      expect((await agent.result(lease_id)).status).toBe(409);
      expect((await agent.poll({ free_slots: 0 })).lost).toEqual([lease_id]);
      await second.upload(again.lease_id, "a.txt", "second");

      const witness = api.agent();
      while ((await api.job(job_id)).status === "running") await witness.poll({ wait_s: 1 });
      expect(await api.record(job_id)).toMatchObject({
        status: "failed",
        error: { type: "internal_error" },
        stdout: "last words",
        artifacts: [],
      });
      expect((await api.record(job_id, "?view=all")).attempts).toMatchObject([
        { attempt: 1, agent_id: agent.id, outcome: "lease_expired" },
        { attempt: 2, agent_id: second.id, outcome: "lease_expired" },
      ]);
      expect((await second.result(again.lease_id)).status).toBe(409);
      expect((await api.get(`/jobs/${job_id}/artifacts/a.txt`)).status).toBe(404);
    }),
  ]),
  test("A job released before its code started is tried again; released a second time, it fails with that error", async (api) => {
    const { agent, job_id, lease_id } = await working(api);
    expect((await release(agent, lease_id)).status).toBe(200);
    expect((await api.job(job_id)).status).toBe("queued");
    const again = await agent.takeJob();
    expect(again.attempt).toBe(2);
    expect((await release(agent, again.lease_id)).status).toBe(200);
    expect(await api.record(job_id)).toMatchObject({ status: "failed", error: dockerError });
  }),
  test("An agent that leaves is no longer counted, and its jobs go to others at once", async (api) => {
    const begun = await working(api);
    await begun.agent.post(begun.lease_id, "started", { job_ref: null });
    const next = await api.submit();
    await begun.agent.takeJob();
    expect((await begun.agent.leave()).status).toBe(200);
    expect(JSON.parse((await api.get("/pool/stats")).text)).toMatchObject({ agents: [] });
    const other = api.agent();
    const [first, second] = [await other.takeJob(), await other.takeJob()];
    expect(first).toMatchObject({ execution_id: begun.job_id, attempt: 2 });
    expect(second).toMatchObject({ execution_id: next.job_id, attempt: 1 });
    expect((await begun.agent.result(begun.lease_id)).status).toBe(409);
    expect((await begun.agent.leave()).status).toBe(200);
  }),
  test("The waiting poll of an agent that leaves does not make the agent count again", async (api) => {
    const agent = api.agent();
    const client = new AbortController();
    const waiting = agent.poll({ wait_s: 20 }, client.signal);
    await api.agent().poll();
    await agent.leave();
    client.abort();
    await expect(waiting).rejects.toThrow("aborted");
    expect((await api.get("/pool/stats")).text).not.toContain(agent.id);
  }),
];

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
  test("A join code is exchanged for an agent's own token, under the name that the code gives it", async (api) => {
    const [code, token] = [await newCode(api, "gpu-1"), newToken()];
    expect(await pollStatus(api, token)).toBe(401);
    const reply = await exchange(api, code, token);
    expect(reply.status).toBe(200);
    expect(JoinReply.parse(body(reply)).agent.name).toBe("gpu-1");
    expect(await pollStatus(api, token)).toBe(200);
    const other = await exchange(api, await newCode(api), newToken(), "its-own");
    expect(JoinReply.parse(body(other)).agent.name).toBe("its-own");
  }),
  test("If many hosts exchange one join code, exactly one succeeds", async (api) => {
    const code = await newCode(api);
    const tokens = Array.from({ length: 6 }, newToken);
    const replies = await Promise.all(tokens.map((token) => exchange(api, code, token)));
    expect(replies.filter(({ status }) => status === 200)).toHaveLength(1);
    expect(replies.filter(({ status }) => status === 401)).toHaveLength(5);
    const polls = await Promise.all(tokens.map((token) => pollStatus(api, token)));
    expect(polls).toEqual(replies.map(({ status }) => status));
  }),
  test("A repeated exchange gets the same answer, and no other exchange of its code succeeds", async (api) => {
    const [code, token] = [await newCode(api), newToken()];
    const first = await exchange(api, code, token);
    expect(body(await exchange(api, code, token))).toEqual(body(first));
    expect((await exchange(api, code, newToken())).status).toBe(401);
  }),
  test("Unknown, expired and used join codes get the same refusal", async (api) => {
    const used = await newCode(api);
    await exchange(api, used, newToken());
    const codes = [`alj_${"0".repeat(40)}`, await newCode(api, null, -1), used];
    const replies = [];
    for (const code of codes) replies.push(await exchange(api, code, newToken()));
    expect(replies.map(({ status }) => status)).toEqual([401, 401, 401]);
    expect(new Set(replies.map((reply) => problemOf(reply).detail)).size).toBe(1);
    expect(problemOf(replies[0]!).detail).toContain("npm run agents -- invite");
  }),
  test("A join code is not accepted as a token, nor a token as a join code", async (api) => {
    const [code, token] = [await newCode(api), newToken()];
    expect(await pollStatus(api, code)).toBe(401);
    const reply = await exchange(api, token, token);
    expect(reply.status).toBe(400);
    expect(problemOf(reply).errors).toMatchObject([{ path: "code" }]);
    expect(reply.text).not.toContain(token);
    expect((await exchange(api, code, token)).status).toBe(200);
  }),
  ...on("with keys", [
    test("An agent's own token gives no access to another agent's leases or to client endpoints", async (api) => {
      const [one, other] = [await joined(api), await joined(api)];
      const agent = api.agent(one.token);
      await agent.poll();
      const leave = JSON.stringify({ agent_id: agent.id, crashed: false });
      for (const token of [other.token, agentTokens[0]]) {
        expect((await api.agent(token).send("POST", "/leave", leave)).status).toBe(403);
      }
      const headers = { Authorization: `Bearer ${one.token}` };
      expect((await api.get("/executions", headers)).status).toBe(401);
    }),
  ]),
  ...on("with short leases", [
    test("A revoked token ends its agent's waiting poll, and its lease goes to another", async (api) => {
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
    }),
  ]),
  test("A rotated token is valid until the new one is used; the agent keeps its leases", async (api) => {
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
  }),
  test("A configured token cannot be rotated: 409", async (api) => {
    const order = JSON.stringify({ token_sha256: hashOf(newToken()) });
    expect((await api.agent().send("POST", "/rotate", order)).status).toBe(409);
  }),
  ...on("in production", [
    test("After 30 attempts to join in a minute an address is refused with 429 and Retry-After", async (api) => {
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
    }),
  ]),
];

export const protocolRows: Row[] = [
  test("An agent that uses the API's protocol version, or sends none, gets an answer with the version", async (api) => {
    const agent = api.agent();
    const leave = JSON.stringify({ agent_id: agent.id, crashed: false });
    for (const headers of [{ [protocolHeader]: protocolVersion }, {}]) {
      const reply = await agent.send("POST", "/leave", leave, headers);
      expect(reply.status).toBe(200);
      expect(reply.headers.get(protocolHeader)).toBe(protocolVersion);
    }
  }),
  test("An agent that speaks another protocol is refused with words that say what to do", async (api) => {
    const agent = api.agent();
    const poll = JSON.stringify(agent.pollRequest());
    for (const told of ["0", "1", "1.1", "latest"]) {
      const reply = await agent.send("POST", "/poll", poll, { [protocolHeader]: told });
      expect(reply.status).toBe(400);
      expect((JSON.parse(reply.text) as { detail: string }).detail).toBe(
        `The agent speaks version ${told} of the agents' protocol, the API version ${protocolVersion}: ` +
          "run the same version of Airlock on both.",
      );
      expect(reply.headers.get(protocolHeader)).toBe(protocolVersion);
    }
    expect((await api.get("/pool/stats")).text).not.toContain(agent.id);
  }),
  test("A refusal to an agent has the protocol header, so that the agent knows it is not from a proxy", async (api) => {
    const paths = ["/agent/v1/poll", "/agent/v1/rotate", "/agent/v1/join"];
    const headers = { Authorization: "Bearer unknown-token-0123456789" };
    for (const path of paths) {
      const reply = await api.post(path, {}, headers);
      expect(reply.status).toBeGreaterThanOrEqual(400);
      expect(reply.headers.get(protocolHeader)).toBe(protocolVersion);
    }
  }),
  ...on("with job types", [
    test("Jobs that need GPUs go to agents with enough free ones; without such an agent the message says so", async (api) => {
      const { job_id } = await api.submit({ job_type: "with-gpus" });
      const [few, many] = [api.agent(), api.agent()];
      expect((await few.poll({ gpus: { total: 1, free: 1 } })).jobs).toEqual([]);
      expect((await api.get(`/jobs/${job_id}`)).text).toContain("asks for 2 GPUs");
      expect((await many.poll({ gpus: { total: 2, free: 1 } })).jobs).toEqual([]);
      expect((await api.get(`/jobs/${job_id}`)).text).toContain("are in use");
      const { jobs } = await many.poll({ gpus: { total: 2, free: 2 } });
      expect(jobs.map((job) => job.execution_id)).toEqual([job_id]);
      await many.result(jobs[0]?.lease_id ?? "");
    }),
  ]),
];

/** Every post for a lease, with two different bodies; the result ends it. */
const posts: ((agent: ScriptedAgent, lease: string, other?: boolean) => Promise<Reply>)[] = [
  (agent, lease, other) => agent.post(lease, "started", { job_ref: other ? "b" : "a" }),
  (agent, lease, other) => agent.post(lease, "logs", { parts: [log(0, other ? "b" : "a")] }),
  (agent, lease, other) => agent.upload(lease, "a.txt", other ? "b" : "a"),
  (agent, lease, other) =>
    agent.result(lease, other ? { status: "failed", exit_code: 1, error: failure } : {}),
];

const statusesOf = async (replies: Promise<Reply>[]) =>
  (await Promise.all(replies)).map(({ status }) => status);

export const leasePostRows: Row[] = [
  test("Each post for a lease of an agent with another token is 403, and changes nothing", async (api) => {
    const { agent, job_id, lease_id } = await working(api);
    const before = await api.record(job_id);
    const thief = api.agent(agentTokens[1]);
    await thief.poll({ free_slots: 0 });
    for (const send of [...posts, release]) expect((await send(thief, lease_id)).status).toBe(403);
    expect(await api.record(job_id)).toEqual(before);
    expect((await agent.result(lease_id)).status).toBe(200);
    expect((await api.record(job_id)).artifacts).toEqual([]);
  }),
  test("Each post for a lease that was given to another agent is 409, and changes nothing", async (api) => {
    const { agent, job_id, lease_id } = await working(api);
    await release(agent, lease_id);
    const next = api.agent();
    const again = await next.takeJob();
    expect(again).toMatchObject({ execution_id: job_id, attempt: 2 });
    expect(again.lease_id).not.toBe(lease_id);
    const before = await api.record(job_id);
    for (const send of [...posts, release]) expect((await send(agent, lease_id)).status).toBe(409);
    expect(await api.record(job_id)).toEqual(before);
    expect((await next.result(again.lease_id)).status).toBe(200);
    expect((await api.record(job_id)).artifacts).toEqual([]);
  }),
  test("A post for an unknown lease is 409", async (api) => {
    const agent = api.agent();
    for (const lease of [crypto.randomUUID(), "x", "%00"]) {
      for (const send of [...posts, release]) expect((await send(agent, lease)).status).toBe(409);
    }
  }),
  test("Each post for a lease that is posted again is 200, with another body 409", async (api) => {
    const { agent, job_id, lease_id } = await working(api);
    for (const send of posts) {
      expect((await send(agent, lease_id)).status).toBe(200);
      const before = await api.record(job_id);
      expect((await send(agent, lease_id)).status).toBe(200);
      expect((await send(agent, lease_id, true)).status).toBe(409);
      expect(await api.record(job_id)).toEqual(before);
    }
    const again = posts.slice(0, 3);
    const late = (other: boolean) => statusesOf(again.map((send) => send(agent, lease_id, other)));
    expect(await late(false)).toEqual([200, 200, 200]);
    // A result has all output, so logs are no longer needed.
    expect(await late(true)).toEqual([409, 200, 409]);
  }),
  test("Each post for a lease that is posted five times at once is 200 five times", async (api) => {
    const { agent, lease_id } = await working(api);
    for (const send of posts) {
      const five = Array.from({ length: 5 }, () => send(agent, lease_id));
      expect(await statusesOf(five)).toEqual([200, 200, 200, 200, 200]);
    }
  }),
  test("A result that asks for the next job gets the oldest one; a result that does not ask gets none", async (api) => {
    const { agent, lease_id } = await working(api);
    const { job_id: second } = await api.submit();
    const { job_id: third } = await api.submit();
    const { reply, jobs } = await agent.resultAndTake(lease_id);
    expect(reply.status).toBe(200);
    expect(jobs).toMatchObject([{ execution_id: second, attempt: 1 }]);
    expect((await api.job(second)).status).toBe("running");
    const plain = await agent.result(jobs[0]?.lease_id ?? "");
    expect(JSON.parse(plain.text)).toEqual({ jobs: [] });
    expect((await api.job(third)).status).toBe("queued");
    await agent.result((await agent.takeJob()).lease_id);
  }),
  test("A repeated result is 200 and gets no job; a job that was lost with the first answer comes with the next poll", async (api) => {
    const { agent, lease_id } = await working(api);
    const { job_id } = await api.submit();
    const { jobs } = await agent.resultAndTake(lease_id);
    const lost = jobs[0]?.lease_id ?? "";
    agent.held.delete(lost);
    const again = await agent.resultAndTake(lease_id);
    expect(again.reply.status).toBe(200);
    expect(again.jobs).toEqual([]);
    expect(await agent.takeJob()).toMatchObject({ lease_id: lost, execution_id: job_id });
    await agent.result(lost);
  }),
  test("A refused result gets no job", async (api) => {
    const { agent, lease_id } = await working(api);
    const { job_id } = await api.submit();
    expect((await agent.resultAndTake(lease_id, { exit_code: 1.5 })).reply.status).toBe(400);
    expect((await agent.resultAndTake(crypto.randomUUID())).reply.status).toBe(409);
    expect((await api.job(job_id)).status).toBe("queued");
    await agent.result(lease_id);
    await agent.result((await agent.takeJob()).lease_id);
  }),
  test("An upload whose hash or size differs from its headers is refused, and is never visible", async (api) => {
    const { agent, job_id, lease_id } = await working(api);
    const wrong = { "X-Airlock-SHA256": "0".repeat(64) };
    expect((await agent.upload(lease_id, "a.txt", "a", wrong)).status).toBe(400);
    for (const sha256 of ["", "x", "0".repeat(63), "G".repeat(64)]) {
      const reply = await agent.upload(lease_id, "a.txt", "a", { "X-Airlock-SHA256": sha256 });
      expect(reply.status).toBe(400);
    }
    const tooLarge = new Uint8Array(100_001);
    expect((await agent.upload(lease_id, "a.bin", tooLarge)).status).toBe(413);
    await agent.result(lease_id);
    expect((await api.record(job_id)).artifacts).toEqual([]);
  }),
  test("A refused upload can be repeated correctly", async (api) => {
    const { agent, job_id, lease_id } = await working(api);
    await agent.upload(lease_id, "a.txt", "a", { "X-Airlock-SHA256": "0".repeat(64) });
    expect((await agent.upload(lease_id, "a.txt", "a")).status).toBe(200);
    await agent.result(lease_id);
    expect((await api.get(`/jobs/${job_id}/artifacts/a.txt`)).text).toBe("a");
  }),
  test("A result that is not valid is 400, and the job goes on", async (api) => {
    const { agent, job_id, lease_id } = await working(api);
    for (const changes of [
      { status: "lost" },
      { status: "succeeded", error: failure },
      { status: "failed", error: null },
      { status: "timeout", error: { ...failure, type: "execution_timeout" }, exit_code: 1 },
      { stdout_base64: "?" },
      { exit_code: 1.5 },
      { timing: null },
    ]) {
      const { status } = await agent.result(lease_id, changes as object);
      expect([changes, status]).toEqual([changes, 400]);
    }
    expect((await api.job(job_id)).status).toBe("running");
  }),
];

/** Lets a host join by the public interface. */
async function joinedByInvitation(api: Api, name: string): Promise<{ id: string; token: string }> {
  const reply = await api.post("/hosts/invitations", { name });
  expect(reply.status).toBe(201);
  const token = newToken();
  const answer = await exchange(api, Invitation.parse(body(reply)).code, token, "its-own");
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
const local = (rows: Row[]): Row[] =>
  rows.map((row) => ({
    ...row,
    only: { on: "node", why: "the service on workerd is open to its network" },
  }));

export const hostRows: Row[] = [
  ...local([
    test("A host joins with a code from POST /hosts/invitations, under the name that the code gives it", async (api) => {
      const { id, token } = await joinedByInvitation(api, "gpu-7");
      expect(await host(api, id)).toMatchObject({ name: "gpu-7", revoked_at: null, agents: [] });
      const agent = api.agent(token);
      await agent.poll({ free_slots: 0 });
      expect(await host(api, id)).toMatchObject({ agents: [agent.id] });
    }),
    test("A code is valid for an hour unless expires_in_s says otherwise", async (api) => {
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
    }),
    test("A revoked host's token is void, and a repeat changes nothing", async (api) => {
      const { id, token } = await joinedByInvitation(api, "to-revoke");
      const agent = api.agent(token);
      await agent.poll({ free_slots: 0 });
      const first = await api.post(`/hosts/${id}/revoke`);
      expect(first.status).toBe(200);
      expect(body(first)).toMatchObject({ id, revoked_at: expect.any(String) as string });
      const poll = JSON.stringify(agent.pollRequest({ free_slots: 0 }));
      while ((await agent.send("POST", "/poll", poll)).status !== 401) await sleep(100);
      const { revoked_at } = body(first) as JoinedHost;
      expect(body(await api.post(`/hosts/${id}/revoke`))).toMatchObject({ revoked_at });
    }),
    test("After POST /hosts/{id}/rotate, the waiting poll of the host's agent and every later one is answered with `rotate`, until the new token is used", async (api) => {
      const { id, token } = await joinedByInvitation(api, "to-rotate");
      const agent = api.agent(token);
      expect(await agent.poll({ free_slots: 0 })).not.toHaveProperty("rotate");
      const waiting = agent.poll({ free_slots: 0, wait_s: 20 });
      const asked = await api.post(`/hosts/${id}/rotate`);
      expect(body(asked)).toMatchObject({ id, rotation_asked_at: expect.any(String) as string });
      expect(await waiting).toMatchObject({ rotate: true });

      const next = newToken();
      const order = JSON.stringify({ token_sha256: hashOf(next) });
      expect((await agent.send("POST", "/rotate", order)).status).toBe(200);
      expect(await host(api, id)).toHaveProperty("rotation_asked_at");
      const heir = api.agent(next);
      expect(await heir.poll({ free_slots: 0 })).not.toHaveProperty("rotate");
      expect(await host(api, id)).not.toHaveProperty("rotation_asked_at");
    }),
    test("POST /hosts/{id}/rotate of a revoked host is 409, of an unknown one 404", async (api) => {
      const { id } = await joinedByInvitation(api, "revoked-before");
      await api.post(`/hosts/${id}/revoke`);
      expect((await api.post(`/hosts/${id}/rotate`)).status).toBe(409);
      expect((await api.post("/hosts/none/rotate")).status).toBe(404);
    }),
    test("A drained agent gets no new job and may end what it runs, until it is resumed", async (api) => {
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
    }),
    test("POST /execute is 503 while every agent is draining", async (api) => {
      const agent = await api.connected({ free_slots: 0 });
      await api.post(`/agents/${agent.id}/drain`);
      expect(await stateOf(api, agent.id)).toBe("draining");
      const reply = await api.post("/execute", { code: "print(1)" });
      expect(reply.status).toBe(503);
      expect(problemOf(reply).detail).toContain("draining");
    }),
  ]),
  ...on("with keys", [
    test("A host or agent that there is not is 404 to an operator", async (api) => {
      for (const path of ["/hosts/none/revoke", "/agents/none/drain", "/agents/none/resume"])
        expect((await api.post(path, undefined, { "X-API-Key": operatorKey })).status).toBe(404);
    }),
  ]),
  {
    rule: "A service without keys that is open to its network lets nobody manage hosts",
    only: { on: "workerd", why: "the tests' service on Node is on loopback" },
    async check(api) {
      const reply = await api.post("/hosts/invitations", {});
      expect(reply.status).toBe(403);
      expect(problemOf(reply).detail).toContain("operator_keys");
    },
  },
];
