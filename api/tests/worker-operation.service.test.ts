import { createClient } from "@libsql/client/web";
import { afterAll, describe, expect, onTestFinished, test } from "vitest";
import type { Bucket } from "../platform/artifacts.worker.ts";
import { Api, problemOf, servers } from "../testing/contract/api.ts";
import { built, startWorker, startWorkerd } from "../testing/start-worker.ts";

test("wrangler.toml is complete: it has every binding that the worker uses", async () => {
  const { said } = await built();
  for (const binding of ["WAKES (Wakes)", "ARTIFACTS (airlock-artifacts)", "ASSETS"]) {
    expect(said).toContain(`env.${binding}`);
  }
  expect(said).toContain('env.AIRLOCK_API_AUTH_ENABLED ("true")');
  expect(said).not.toMatch(/warning/i);
});

test("a worker without its keys answers no requests, and says where to look", async () => {
  const service = await startWorker({ ...servers.open, AIRLOCK_API_AUTH_ENABLED: "true" });
  onTestFinished(() => service.close());
  const reply = await fetch(`${service.url}/execute/async`, { method: "POST" });
  expect([reply.status, reply.headers.get("Retry-After")]).toEqual([503, "60"]);
  expect(await reply.text()).toContain("wrangler tail");
});

describe("worker cron", async () => {
  const service = await startWorker({
    ...servers.open,
    AIRLOCK_EXECUTION_RETENTION_DAYS: "0.000000001",
    AIRLOCK_MAX_FILE_BYTES: "1000000000",
  });
  const database = createClient({ url: service.databaseUrl });
  afterAll(async () => {
    database.close();
    await service.close();
  });

  test("an uploaded file may have what the platform takes in one request, and the limit says so", async () => {
    const document = await (await fetch(`${service.url}/openapi.json`)).text();
    const [limit] = /At most \d+ bytes \(`max_file_bytes`\)/.exec(document) ?? [];
    expect(limit).toBe("At most 100000000 bytes (`max_file_bytes`)");
  });

  async function cron(): Promise<void> {
    expect(await service.scheduled()).toMatchObject({ outcome: "ok" });
  }

  /** Number of objects in the R2 bucket. */
  async function objects(): Promise<number> {
    const { ARTIFACTS } = (await service.bindings()) as { ARTIFACTS: Bucket };
    return (await ARTIFACTS.list({ prefix: "" })).objects.length;
  }

  test("the cron trigger removes old data from the database, and later from R2", async () => {
    const api = new Api(service.url);
    const agent = api.agent();
    const { job_id } = await api.submit();
    const { lease_id } = await agent.takeJob();
    for (const name of ["a", "b"]) {
      expect((await agent.upload(lease_id, name, `file ${name}`)).status).toBe(200);
    }
    expect((await agent.result(lease_id)).status).toBe(200);
    expect((await api.get(`/jobs/${job_id}/artifacts/a`)).text).toBe("file a");
    expect(await objects()).toBe(2);

    await cron();
    expect((await api.get(`/jobs/${job_id}`)).status).toBe(404);
    expect(await objects()).toBe(2);
    await database.execute("update removals set due_at = 0");
    await cron();
    expect(await objects()).toBe(0);
    expect((await database.execute("select * from removals")).rows).toEqual([]);
  });
});

test("while the worker's database is gone, requests are 503 with Retry-After", async () => {
  const worker = await startWorkerd(servers.open, true);
  onTestFinished(() => worker.close());
  const api = new Api(worker.url);
  await api.submit();
  await worker.database.close();
  const replies = [
    await api.post("/execute/async", { code: "print(1)" }),
    await api.get("/executions"),
  ];
  for (const reply of replies) {
    expect(reply.status).toBe(503);
    expect(Number(reply.headers.get("Retry-After"))).toBeGreaterThan(0);
    expect(problemOf(reply).error).toMatchObject({ type: "service_unavailable" });
  }
});
