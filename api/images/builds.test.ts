import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { beforeEach, describe, expect, test } from "vitest";
import { JobTypeDefinition } from "../../shared/wire/job-types.ts";
import { findAgent, recordAgent } from "../agents/agents.ts";
import type { Deps } from "../deps.ts";
import { buildSpec, environment } from "../jobs/environment.ts";
import { sweep } from "../sweep.ts";
import { ScriptedAgent } from "../testing/scripted-agent.ts";
import { by, openTempStore, testDeps } from "../testing/temp-store.ts";
import { store, useStore } from "../testing/use-store.ts";
import { archiveKey, recordBuildResult, storeImageUpload } from "./builds.ts";
import { claimBuilds, findBuildByLease, finishBuild, requestBuild } from "./sql.ts";

describe("images", () => {
  const hourMs = 3_600_000;
  const dayMs = 24 * hourMs;

  useStore();
  let clock: number;
  let deps: Deps;
  beforeEach(() => {
    clock = 100 * dayMs;
    deps = testDeps(store.db, store.folder, () => clock, {
      job_types: { science: JobTypeDefinition.parse({}) },
    });
  });

  /** Builds the job type, and gives the place of its image's archive. */
  async function build(n: number): Promise<string> {
    const { jobType } = environment(deps.config, [], "science")!;
    await requestBuild(
      deps.db,
      {
        id: `build-${n}`,
        jobType: "science",
        tag: "latest",
        spec: buildSpec(jobType),
        imageRef: "airlock-science:latest",
        correlationId: "c",
        createdAt: clock,
      },
      by(),
    );
    const terms = { agentId: "a", expiresAt: clock + 1000, now: clock };
    const [{ leaseId } = { leaseId: null }] = await claimBuilds(deps.db, terms, 1, ["science"]);
    const row = (await findBuildByLease(deps.db, leaseId!))!;
    const text = `archive ${n}`;
    const announced = {
      sizeBytes: text.length,
      sha256: createHash("sha256").update(text).digest("hex"),
    };
    await storeImageUpload(deps, row, leaseId!, new Blob([text]).stream(), announced);
    const digest = `sha256:${String(n).padStart(64, "0")}`;
    const report = {
      status: "built",
      digest,
      python_version: "3.13.5",
      manifest_digest: null,
    } as const;
    await finishBuild(deps.db, leaseId!, report, "hash", clock);
    return join(store.folder, "artifacts", archiveKey({ id: row.id, leaseId }, announced.sha256));
  }

  test("the archive of a job type's last build stays; the one before is removed an hour later", async () => {
    const first = await build(1);
    clock += 30 * dayMs;
    await sweep(deps);
    expect(existsSync(first)).toBe(true);
    const second = await build(2);
    await sweep(deps);
    clock += hourMs - 1;
    await sweep(deps);
    expect(existsSync(first)).toBe(true);
    clock += 1;
    await sweep(deps);
    expect([first, second].map((path) => existsSync(path))).toEqual([false, true]);
  });

  test("an archive that no job type needs is removed after a day", async () => {
    const path = await build(1);
    deps = { ...deps, config: { ...deps.config, job_types: {} } };
    clock += dayMs - 1;
    await sweep(deps);
    clock += 2 * hourMs;
    expect(existsSync(path)).toBe(true);
    await sweep(deps);
    expect(existsSync(path)).toBe(true);
    clock += hourMs;
    await sweep(deps);
    expect(existsSync(path)).toBe(false);
  });
});

test("an agent has the image that it built once, however often it reports it", async () => {
  const store = await openTempStore();
  const deps = testDeps(store.db, store.folder, () => 10);
  const agent = new ScriptedAgent();
  await recordAgent(store.db, { ...agent.status(), images: ["earlier"] }, "token", 10);
  await requestBuild(
    store.db,
    {
      id: "build",
      jobType: "science",
      tag: "latest",
      spec: "{}",
      imageRef: "airlock-science:latest",
      correlationId: "c",
      createdAt: 1,
    },
    by(),
  );
  const terms = { agentId: agent.id, expiresAt: 1000, now: 10 };
  const [build] = await claimBuilds(store.db, terms, 1, ["science"]);
  const digest = `sha256:${"0".repeat(64)}`;
  const report = {
    status: "built",
    digest,
    python_version: "3.13.5",
    manifest_digest: null,
  } as const;
  for (let n = 0; n < 2; n++) await recordBuildResult(deps, build!.leaseId!, report);
  expect((await findAgent(store.db, agent.id))?.images).toEqual(["earlier", digest]);
  store.close();
});
