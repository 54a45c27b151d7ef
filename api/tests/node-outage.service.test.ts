import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { createClient } from "@libsql/client";
import { afterAll, expect, test } from "vitest";
import { tempFolder, waitUntil } from "../../shared/testing/test-file.ts";
import { Api, problemOf, servers } from "../testing/contract/api.ts";
import { faults, startDatabaseProxy } from "../testing/database-proxy.ts";
import { reservePort } from "../testing/reserve-port.ts";
import type { Reply } from "../testing/scripted-agent.ts";
import { startNodeIn } from "../testing/start-node.ts";
import { type RunningDatabase, startEmptySqld } from "../testing/start-stores.ts";

const running: { close(): Promise<void> }[] = [];
afterAll(() => Promise.all(running.map((one) => one.close())));

async function startApi(folder: string, vars: Record<string, string> = {}): Promise<Api> {
  const node = await startNodeIn(folder, { ...servers.open, ...vars });
  running.push(node);
  return new Api(node.url);
}

/** Repeats a request until the outage has lasted as long as docs/faults.md says. */
async function throughoutTheOutage(ask: () => Promise<void>): Promise<void> {
  for (const endsAt = performance.now() + 10_000; performance.now() < endsAt; await sleep(100)) {
    await ask();
  }
}

function expectTryLater(reply: Reply): void {
  expect(reply.status).toBe(503);
  expect(Number(reply.headers.get("Retry-After"))).toBeGreaterThan(0);
  expect(problemOf(reply).error).toMatchObject({ type: "service_unavailable" });
}

test.concurrent("while another process has the database's lock for 10 s, submissions are 503; then they are accepted", async () => {
  const folder = tempFolder();
  const api = await startApi(folder);
  const { job_id } = await api.submit();
  const agent = api.agent();
  const { lease_id } = await agent.takeJob();
  const other = createClient({ url: `file:${folder}/airlock.db` });
  const lock = await other.transaction("write");

  await throughoutTheOutage(async () => {
    expectTryLater(await api.post("/execute/async", { code: "print(1)" }));
    expect((await api.job(job_id)).status).toBe("running");
  });

  await lock.rollback();
  other.close();
  await api.submit();
  expect((await agent.result(lease_id)).status).toBe(200);
});

async function startSqld(folder: string, port: number): Promise<RunningDatabase> {
  const sqld = await startEmptySqld(join(folder, "db"), port);
  running.push(sqld);
  return sqld;
}

/** The API with a remote database. */
async function startBoth() {
  const [folder, port] = [tempFolder(), await reservePort()];
  const sqld = await startSqld(folder, port);
  const api = await startApi(folder, { AIRLOCK_DATABASE_URL: `http://127.0.0.1:${port}` });
  return { api, folder, port, sqld };
}

test.concurrent("while a remote database is gone for 10 s, requests are 503; when it is back, the leases still hold, and a synchronous request has its answer", async () => {
  const { api, folder, port, sqld } = await startBoth();
  const { job_id } = await api.submit();
  const agent = api.agent();
  const { lease_id } = await agent.takeJob();
  const reply = api.post("/execute", { code: "print(1)" });
  const sync = await agent.takeJob();

  await sqld.close();
  await throughoutTheOutage(async () => {
    expectTryLater(await api.post("/execute/async", { code: "print(1)" }));
    expectTryLater(await api.get(`/jobs/${job_id}`));
    expectTryLater(await api.get("/executions"));
    expect((await agent.result(lease_id)).status).toBe(503);
  });

  await startSqld(folder, port);
  expect((await agent.result(lease_id)).status).toBe(200);
  expect((await api.job(job_id)).status).toBe("succeeded");
  expect((await agent.result(sync.lease_id)).status).toBe(200);
  expect((await reply).status).toBe(200);
  expect(await api.newest()).toEqual([sync.execution_id, job_id]);
});

test.concurrent("the service is live and not ready while its database is frozen or gone, and ready again after", async () => {
  const { api, folder, port, sqld } = await startBoth();
  expect((await api.get("/health/ready")).status).toBe(200);

  process.kill(sqld.pid, "SIGSTOP");
  // The kernel stops its threads one after the other: on a busy machine one may answer once more.
  await waitUntil("not ready", async () => (await api.get("/health/ready")).status === 503);
  expectTryLater(await api.get("/health/ready"));
  expect((await api.get("/health/live")).status).toBe(200);
  process.kill(sqld.pid, "SIGCONT");
  expect((await api.get("/health/ready")).status).toBe(200);

  await sqld.close();
  expectTryLater(await api.get("/health/ready"));
  expect((await api.get("/health/live")).status).toBe(200);
  await startSqld(folder, port);
  expect((await api.get("/health/ready")).status).toBe(200);
});

test.concurrent.each(["/execute", "/execute/async"])(
  "POST %s stores one job if the answer of its commit is lost, and its client gets that job",
  async (path) => {
    const [folder, port] = [tempFolder(), await reservePort()];
    await startSqld(folder, port);
    await using database = await startDatabaseProxy(`http://127.0.0.1:${port}`);
    const api = await startApi(folder, { AIRLOCK_DATABASE_URL: database.url });
    const agent = api.agent();
    await agent.poll();
    database.fail(String.raw`insert into \"executions\"`, faults.lost);
    const reply = api.post(path, { code: "print(1)" });
    // A poll whose own write shares the lost commit is 503; an agent asks again.
    const { lease_id, execution_id } = await agent.takeJob().catch(() => agent.takeJob());
    await agent.result(lease_id);
    expect((await reply).status).toBeLessThan(300);
    expect((await reply).text).toContain(`"job_id":"${execution_id}"`);
    expect(await api.newest()).toEqual([execution_id]);
  },
);
