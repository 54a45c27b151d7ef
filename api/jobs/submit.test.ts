import { expect, test } from "vitest";
import { JobTypeDefinition } from "../../shared/wire/job-types.ts";
import { setLimits } from "../tenants/sql.ts";
import { by, clientOf, leaseJob, noLimits, testDeps } from "../testing/temp-store.ts";
import { store, useStore } from "../testing/use-store.ts";
import { runnableEnvironment, submit } from "./submit.ts";

useStore();

test("a tenant's refusal names the job types that it may use, and no others", async () => {
  const [ofAll, ofB] = [JobTypeDefinition.parse({}), JobTypeDefinition.parse({ tenants: ["b"] })];
  const config = { job_types: { default: ofB, science: ofB, plain: ofAll } };
  const deps = testDeps(store.db, store.folder, Date.now, config);
  const refusal = (tenant: string) =>
    runnableEnvironment(clientOf(deps, tenant), "scienc").catch((error: Error) => error);
  expect(await refusal("a")).toMatchObject({
    message: 'job_type: no job type is named "scienc".',
    extras: { errors: [{ message: "must be one of: plain" }] },
  });
  expect(await refusal("b")).toMatchObject({
    message: 'job_type: no job type is named "scienc": did you mean "science"?',
  });
});

test("the refusal of an unknown job type names the nearest one, and each that exists once", async () => {
  const jobType = JobTypeDefinition.parse({});
  const config = { job_types: { default: jobType, science: jobType } };
  const deps = testDeps(store.db, store.folder, Date.now, config);
  const refusal = (name: string) =>
    runnableEnvironment(clientOf(deps), name).catch((error: Error) => error);
  expect(await refusal("scinece")).toMatchObject({
    message: 'job_type: no job type is named "scinece": did you mean "science"?',
    extras: { errors: [{ path: "job_type", message: "must be one of: default, science" }] },
  });
  expect(await refusal("nowhere")).toMatchObject({
    message: 'job_type: no job type is named "nowhere".',
  });
});

test("a refusal names the limit that refused, also if there is room by the time of the answer", async () => {
  await setLimits(store.db, "default", { ...noLimits, max_queued: 1 }, by());
  const deps = testDeps(store.db, store.folder, Date.now);
  const job = { code: "1", input_data: {}, startup_timeout: 60, requirements: [] };
  const origin = { mode: "async", correlationId: "c", clientIp: "192.0.2.1" } as const;
  const send = () => submit(clientOf(deps), { ...job, job_type: "default" }, origin);
  await send();
  const { client } = store.db;
  const batch = client.batch.bind(client);
  client.batch = async (...given) => {
    const results = await batch(...given);
    client.batch = batch;
    await leaseJob(store.db, { now: Date.now() });
    return results;
  };
  await expect(send()).rejects.toMatchObject({
    code: "quota_exceeded",
    extras: { quota: "max_queued", limit: 1, used: 1 },
  });
});
