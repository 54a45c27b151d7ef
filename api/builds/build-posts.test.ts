import { expect, test } from "vitest";
import { recordAgent, findAgent } from "../store/agents/agents.ts";
import { claimBuilds } from "../store/builds/build-lease.ts";
import { requestBuild } from "../store/builds/builds.ts";
import { ScriptedAgent } from "../testing/scripted-agent.ts";
import { by, openTempStore } from "../testing/temp-store.ts";
import { testDeps } from "../testing/test-deps.ts";
import { recordBuildResult } from "./build-posts.ts";

test("an agent has the image that it built once, however often it reports it", async () => {
  const store = await openTempStore();
  const deps = testDeps(store.db, store.folder, () => 10);
  const agent = new ScriptedAgent("http://unused", "");
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
