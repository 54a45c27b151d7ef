import { createClient } from "@libsql/client/web";
import { afterAll, expect, test } from "vitest";
import type { Bucket } from "../platform/artifacts/artifacts-r2.worker.ts";
import { Api } from "../testing/contract/api.ts";
import { servers } from "../testing/contract/servers.ts";
import { startWorker } from "../testing/start-worker.ts";

const retention = { AIRLOCK_EXECUTION_RETENTION_DAYS: "0.000000001" };
const service = await startWorker({ ...servers.open, ...retention });
const database = createClient({ url: service.databaseUrl });
afterAll(async () => {
  database.close();
  await service.close();
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
