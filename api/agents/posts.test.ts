import { createHash, randomBytes } from "node:crypto";
import { setImmediate as nextTick } from "node:timers/promises";
import { beforeEach, describe, expect, test } from "vitest";
import { OutputReport } from "../../shared/wire/executions.ts";
import { createApp } from "../app.ts";
import type { Deps } from "../deps.ts";
import { findExecution, type LeasedRow } from "../jobs/sql.ts";
import { submit } from "../jobs/submit.ts";
import { sha256 } from "../platform/process.node.ts";
import { ScriptedAgent, success } from "../testing/scripted-agent.ts";
import { onExecute } from "../testing/statements.ts";
import { by, clientOf, leasedJob, testDeps } from "../testing/temp-store.ts";
import { store, useStore } from "../testing/use-store.ts";
import { addJoinCode, exchangeCode, forgetAgents, revokeToken } from "./agents.ts";
import { findAgent } from "./fleet.ts";
import { recordLog, recordResult, storeUpload } from "./posts.ts";

const maxStdoutBytes = 1024;
const maxArtifactBytes = 1000;

useStore();
let deps: Deps;
beforeEach(() => {
  deps = testDeps(store.db, store.folder, () => 10, {
    max_stdout_bytes: maxStdoutBytes,
    max_artifact_bytes: maxArtifactBytes,
  });
});

const chunk = (bytes: number, offset = 0, stream: "stdout" | "stderr" = "stdout") => ({
  parts: [{ stream, offset, data_base64: Buffer.alloc(bytes, "x").toString("base64") }],
});

const newToken = () => `ala_${randomBytes(32).toString("hex")}`;

/** Returns the id of the token. */
async function joinWith(token: string, now: number): Promise<string> {
  const [id, tokenHash] = [crypto.randomUUID(), await sha256(token)];
  await addJoinCode(store.db, { codeHash: tokenHash, name: null, expiresAt: now * 2 }, by(now));
  await exchangeCode(store.db, tokenHash, { id, tokenHash, name: "n" }, now);
  return id;
}

async function keptBytes(): Promise<number> {
  const sum = "select coalesce(sum(length(data)), 0) from output_chunks";
  return Number((await store.db.client.execute(sum)).rows[0]?.[0]);
}

describe("the log of a running job", () => {
  test("is removed when the result arrives", async () => {
    const job = await leasedJob(store.db);
    await recordLog(deps, job, chunk(100));
    expect(await keptBytes()).toBe(100);
    await recordResult(deps, job, job.leaseId, success);
    expect(await keptBytes()).toBe(0);
  });

  test("has the same limit per stream, over the whole job, as a result", async () => {
    const job = await leasedJob(store.db);
    await recordLog(deps, job, chunk(maxStdoutBytes - 1));
    await recordLog(deps, job, chunk(1, maxStdoutBytes - 1));
    await recordLog(deps, job, chunk(maxStdoutBytes, 0, "stderr"));
    for (const beyond of [chunk(1, maxStdoutBytes), chunk(1, maxStdoutBytes, "stderr")]) {
      await expect(recordLog(deps, job, beyond)).rejects.toMatchObject({ code: "too_large" });
    }
    await recordLog(deps, job, chunk(maxStdoutBytes - 1));
    expect(await keptBytes()).toBe(2 * maxStdoutBytes);
  });

  test("accepts no empty chunks, whose number no byte limit could bound", () => {
    expect(OutputReport.safeParse(chunk(0)).success).toBe(false);
  });
});

describe("the artifacts of a job", () => {
  const upload = async (job: LeasedRow, name: string, size: number) => {
    const text = name.padEnd(size, "x").slice(0, size);
    const sha256 = createHash("sha256").update(text).digest("hex");
    await storeUpload(deps, job, name, new Blob([text]).stream(), { sizeBytes: size, sha256 });
  };

  test("have at most max_artifact_bytes together", async () => {
    const job = await leasedJob(store.db);
    await upload(job, "a", 600);
    await expect(upload(job, "b", 401)).rejects.toMatchObject({ code: "too_large" });
    await upload(job, "b", 400);
    await upload(job, "a", 600);
    await expect(upload(job, "c", 1)).rejects.toMatchObject({ code: "too_large" });
  });

  test("have no more if they are uploaded at once", async () => {
    const job = await leasedJob(store.db);
    const names = ["a", "b", "c", "d"];
    const done = await Promise.allSettled(names.map((name) => upload(job, name, 400)));
    expect(done.filter(({ status }) => status === "fulfilled")).toHaveLength(2);
    expect(await findExecution(store.db, job.id)).toMatchObject({ status: "running" });
  });
});

describe("tokens", () => {
  let app: ReturnType<typeof createApp>;
  let now = 1_000_000;
  let reads = 0;
  beforeEach(() => {
    onExecute(store.db.client, (sql) => {
      if (sql.includes("agent_tokens")) reads += 1;
    });
    app = createApp(testDeps(store.db, store.folder, () => now));
  });

  async function statusWith(token: string): Promise<number> {
    const headers = { Authorization: `Bearer ${token}`, "Content-Type": "application/json" };
    return (await app.request("/agent/v1/nowhere", { method: "POST", headers, body: "{}" })).status;
  }

  test("unknown tokens of one client cause a limited number of reads, and agents at its address still work, new ones too", async () => {
    const [token, newcomer] = [newToken(), newToken()];
    for (const joining of [token, newcomer]) await joinWith(joining, now);
    const known = await statusWith(token);
    expect([401, 429]).not.toContain(known);

    reads = 0;
    const answers = new Set<number>();
    for (let n = 0; n < 200; n++) answers.add(await statusWith(newToken()));
    expect(answers).toEqual(new Set([401, 429]));
    expect(reads).toBeLessThanOrEqual(31);
    expect(await statusWith(newcomer)).toBe(known);
    now += 2000;
    expect(await statusWith(token)).toBe(known);
    now += 60_000;
    expect(await statusWith(newToken())).toBe(401);
  });
});

describe("leave", () => {
  const [token, anotherToken] = ["a-token-of-16-characters", "b-token-of-16-characters"];
  const limits = { startup_timeout: 60, requirements: [] };
  const job = { code: "1", input_data: {}, job_type: "default", ...limits };
  let app: ReturnType<typeof createApp>;
  let agent: ScriptedAgent;

  beforeEach(() => {
    deps = testDeps(store.db, store.folder, Date.now, { agent_tokens: [token, anotherToken] });
    app = createApp(deps);
    agent = newAgent();
  });

  const newAgent = (bearer = token) => new ScriptedAgent(app, bearer);
  const submitJob = async (): Promise<string> => {
    const origin = { mode: "async", correlationId: "c", clientIp: "192.0.2.1" } as const;
    return (await submit(clientOf(deps), job, origin)).job_id;
  };
  const status = async (id: string) => (await findExecution(store.db, id))!.status;

  /** Leases up to `free_slots` jobs to an agent. */
  const poll = async (one: ScriptedAgent, free_slots: number, wait_s = 0) =>
    (await one.poll({ free_slots, wait_s })).jobs;

  const start = async (lease: string, job_ref: string | null = null) =>
    (await agent.post(lease, "started", { job_ref })).status;

  test("a job that a stopping agent releases before its code started keeps its attempt", async () => {
    const id = await submitJob();
    const error = { type: "service_unavailable", message: "The agent stopped.", phase: "startup" };
    for (let times = 1; times <= 3; times++) {
      const [lease] = await poll(agent, 1);
      expect(lease).toMatchObject({ execution_id: id, attempt: 1 });
      const reply = await agent.post(lease!.lease_id, "release", { error, agent_stops: true });
      expect(reply.status).toBe(200);
    }
    expect(await status(id)).toBe("queued");
  });

  describe("after an agent has left", () => {
    test("its waiting poll gets no job", async () => {
      const stale = poll(agent, 1, 1);
      while (!(await findAgent(deps.db, agent.id))) await nextTick();
      await agent.leave();
      const id = await submitJob();
      expect(await stale).toEqual([]);
      expect(await status(id)).toBe("queued");
    });

    test("its late poll is refused, and the agent is not listed again", async () => {
      await poll(agent, 1);
      await agent.leave();
      const late = JSON.stringify(agent.pollRequest({ free_slots: 1 }));
      expect((await agent.send("POST", "/poll", late)).status).toBe(409);
      expect(await (await app.request("/pool/stats")).text()).not.toContain(agent.id);
    });
  });

  test("a revoked agent's id and leases are no other agent's", async () => {
    const own = newToken();
    const tokenId = await joinWith(own, Date.now());
    const [revoked, other] = [newAgent(own), newAgent()];
    const id = await submitJob();
    const [lease] = await poll(revoked, 1);
    await revokeToken(store.db, tokenId, by(Date.now()));
    for (const gone of [[revoked.id], []]) {
      expect(await forgetAgents(store.db, 0, Date.now())).toEqual(gone);
    }
    const { agent: itself, ...asked } = other.pollRequest();
    const asRevoked = JSON.stringify({ ...asked, agent: { ...itself, id: revoked.id } });
    expect((await other.send("POST", "/poll", asRevoked)).status).toBe(403);
    expect((await other.result(lease!.lease_id)).status).toBe(403);
    const late = JSON.stringify(revoked.pollRequest());
    expect((await revoked.send("POST", "/poll", late)).status).toBe(401);
    expect(await status(id)).toBe("running");
  });

  describe("an agent that crashed, as the next agent on its host reports", () => {
    test("loses its jobs: all are leased again at once as second attempts, even those not started", async () => {
      const [begun, waiting] = [await submitJob(), await submitJob()];
      const [first] = await poll(agent, 2);
      await start(first!.lease_id, "default@sha256:0");
      expect((await agent.leave(true)).status).toBe(200);
      expect(await poll(newAgent(), 2)).toMatchObject([
        { execution_id: begun, attempt: 2 },
        { execution_id: waiting, attempt: 2 },
      ]);
      expect(await start(first!.lease_id)).toBe(409);
      expect((await agent.leave(true)).status).toBe(200);
    });

    test("continues without those jobs if it is still alive", async () => {
      await submitJob();
      const [lost] = await poll(agent, 1);
      await agent.leave(true);
      expect(await agent.poll({ free_slots: 0 })).toMatchObject({ lost: [lost!.lease_id] });
    });
  });

  test("a leave wakes agents that wait for a job and clients that wait for its end", async () => {
    const id = await submitJob();
    for (const topic of ["job", `execution:${id}`] as const) {
      agent = newAgent();
      const [lease] = await poll(agent, 1);
      await start(lease!.lease_id);
      const wakes = deps.notifier.subscribe([topic]);
      await agent.leave();
      // Only a wake-up ends this wait, never a timeout.
      await wakes.next(2 ** 31 - 1, new AbortController().signal);
      wakes.close();
    }
    expect(await status(id)).toBe("failed");
  });
});
