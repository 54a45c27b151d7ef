import { describe, expect, test } from "vitest";
import { loadConfig } from "../../../shared/config/config.ts";
import {
  agent,
  breaker,
  built,
  digest,
  environmentOf,
  inProduction,
  labelled,
  plain,
  withBase,
  withBuilt,
} from "../../testing/placement-world.ts";
import type { Environment } from "../environment.ts";
import { turnMessage, whyNobodyRuns, whyNobodyTakes } from "./waiting.ts";

const shared: Environment = { ...built, built: { ...built.built!, archiveSha256: "1" } };
const engine = { available: true, version: "1", runtimes: [] };
const missing_images = [{ image: digest, reason: "no route to host" }];
const without = agent({ engine: { ...engine, missing_images } });

describe("why no agent can run a job", () => {
  test.each([
    ["an agent without images, which may pull", plain, [agent()], undefined],
    ["the agent that built it", built, [withBase, withBuilt], undefined],
    ["no agent", plain, [], "No agent is connected. Start one: npm run agent."],
    [
      "no agent with the labels",
      labelled,
      [withBase],
      "No connected agent has the labels that job type t asks for: gpu=a100.",
    ],
    [
      "no agent with the image",
      built,
      [withBase],
      `No connected agent has the image airlock-t:v1.0.0 (${digest}). Connect the agent that built it, or build it again: POST /job-types/t/build.`,
    ],
    [
      "an image on its way",
      shared,
      [withBase, agent({ labels: { zone: "b" } })],
      `Its image airlock-t:v1.0.0 (${digest}) is on its way to 2 agents.`,
    ],
    [
      "an image that one agent has not got, and another may still get",
      shared,
      [without, withBase],
      `Its image airlock-t:v1.0.0 (${digest}) is on its way to 2 agents.`,
    ],
    [
      "an image that no agent has got",
      shared,
      [without],
      `Its image airlock-t:v1.0.0 (${digest}) is on no agent that could run it; a could not get it: no route to host. It is tried again.`,
    ],
    [
      "no built image, in production mode",
      inProduction,
      [withBase],
      "Job type t has no built image for its present configuration, which production_mode requires: POST /job-types/t/build.",
    ],
  ])("%s", (_what, environment, live, reason) => {
    expect(whyNobodyRuns(environment, live)).toBe(reason);
  });
});

describe("why no agent takes a job now", () => {
  const config = loadConfig({ liveness_s: 30, lease_ttl_s: 180 }, {});
  const gpu = environmentOf({ gpus: 2 });
  const off = { available: false, version: null, runtimes: [] };
  const failed = { ...breaker, state: "open", last_failure: new Date(0).toISOString() } as const;
  test.each([
    ["a vacant agent", plain, agent(), 0, undefined],
    ["no vacant agent", plain, agent(), 1, "Every agent that could run it is busy."],
    [
      "an open breaker",
      plain,
      agent({ breaker: failed }),
      0,
      "The circuit breaker of every agent that could run it is open until 1970-01-01T00:00:30.000Z: their container engines keep failing.",
    ],
    [
      "no engine",
      plain,
      agent({ engine: off }),
      0,
      "The container engine of every agent that could run it is out of reach.",
    ],
    [
      "no free GPU",
      gpu,
      agent({ gpus: { total: 2, free: 1 } }),
      0,
      "The GPUs of every agent that could run it are in use.",
    ],
    [
      "the only agent drained",
      plain,
      agent({ drainingAt: 1 }),
      0,
      "An operator drains every agent that could run it: none takes new jobs.",
    ],
    ["free GPUs", gpu, agent({ gpus: { total: 2, free: 2 } }), 0, undefined],
  ])("%s", (_what, one, only, running, reason) => {
    const held = new Map([["a", running]]);
    expect(whyNobodyTakes(one, [only], config, 1000, null, held)).toBe(reason);
  });

  test("too few GPUs", () => {
    expect(whyNobodyRuns(gpu, [agent({ gpus: { total: 1, free: 1 } })])).toBe(
      "Job type t asks for 2 GPUs, and no connected agent that has its labels gives more than 1 (agent_gpus).",
    );
  });
});

test("a turn tells how many jobs are ahead", () => {
  expect(turnMessage(1)).toBe("Waiting for a worker, at position 1.");
  expect(turnMessage(5)).toBe("Waiting for a worker, at position 5, 4 jobs ahead.");
});
