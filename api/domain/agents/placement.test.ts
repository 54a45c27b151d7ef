import { describe, expect, test } from "vitest";
import { loadConfig } from "../../../shared/config/config.ts";
import {
  agent,
  base,
  breaker,
  built,
  inProduction,
  labelled,
  plain,
  withBase,
  withBuilt,
} from "../../testing/placement-world.ts";
import type { InputWay } from "../../../shared/wire/file.ts";
import type { AgentReport } from "./capacity.ts";
import { mayBuild, mayRun, servingAgents, whyNobodyBuilds } from "./placement.ts";

const accepting = (...job_types: string[]) => agent({ accepts: { job_types, builds: true } });
const withoutBuilds = agent({ accepts: { job_types: null, builds: false } });
const gpu = agent({ labels: { gpu: "a100" } });
const giving = (inputs: InputWay, images: string[] = []) =>
  agent({ accepts: { job_types: null, builds: true, inputs }, images });
const [mounting, mountingBase, sending] = [
  giving("mount"),
  giving("mount", [base]),
  giving("frames", [base]),
];
const idleGpu = { ...withoutBuilds, labels: { gpu: "a100" } };

describe("a job may be given to an agent", () => {
  test.each([
    ["that has the base image of a type that is not built", true, withBase, plain, [withBase]],
    ["that lacks it, while nobody has it: it may pull", true, agent(), plain, [agent()]],
    ["that lacks it, while another has it", false, agent(), plain, [agent(), withBase]],
    [
      "that lacks it and mounts files, while the one that has it does not mount files",
      true,
      mounting,
      plain,
      [sending],
    ],
    ["that lacks it, while one that mounts files has it", false, agent(), plain, [mountingBase]],
    ["that has the built image", true, withBuilt, built, [withBuilt]],
    ["that has only the base image of a built type", false, withBase, built, [withBase]],
    ["of a type that is not built, in production mode", false, withBase, inProduction, [withBase]],
    ["without the labels", false, withBase, labelled, [withBase]],
    ["whose operator accepts the type", true, accepting("t"), plain, [agent()]],
    ["whose operator does not, while another's does", false, accepting("u"), plain, [agent()]],
    [
      "whose operator does not, while another's does that lacks the labels",
      true,
      { ...accepting("u"), labels: { gpu: "a100" } },
      labelled,
      [agent()],
    ],
    [
      "whose operator does not, nor anybody's: to refuse it",
      true,
      accepting("u"),
      plain,
      [accepting("v")],
    ],
    [
      "that may pull the image, while it is on the host of one that does not accept the type",
      true,
      agent(),
      plain,
      [agent(), { ...accepting("u"), images: [base] }],
    ],
    [
      "with the labels, among others",
      true,
      agent({ labels: { gpu: "a100", zone: "b" } }),
      labelled,
      // That one has the image, but may not run the job either.
      [withBase],
    ],
  ])("%s: %s", (_what, expected, one, environment, serving) => {
    expect(mayRun(one, environment, serving)).toBe(expected);
  });
});

test.each([
  ["that builds", true, agent(), plain, [withoutBuilds]],
  ["that does not build, while another does", false, withoutBuilds, plain, [agent()]],
  ["that does not build, nor anybody: to refuse it", true, withoutBuilds, plain, [withoutBuilds]],
  ["that does not accept the type, while another does", false, accepting("u"), plain, [agent()]],
  ["without the labels", false, agent(), labelled, []],
  ["without the labels, while none with them builds", false, agent(), labelled, [idleGpu]],
])("a build may be given to an agent %s: %s", (_what, expected, one, environment, serving) => {
  expect(mayBuild(one, environment, serving, false)).toBe(expected);
});

test.each([
  ["without the labels, while none with them builds", true, agent(), [idleGpu]],
  ["without the labels, while one with them builds", false, agent(), [idleGpu, gpu]],
  ["without the labels, while nobody has them", false, agent(), [agent()]],
  ["without the labels that does not build", false, withoutBuilds, [idleGpu]],
  ["with the labels that does not build, while another does", false, idleGpu, [agent()]],
  ["with the labels that does not build, nor anybody", true, idleGpu, [withoutBuilds]],
  ["with the labels that builds", true, gpu, [agent()]],
])(
  "if images are shared, a build may be given to an agent %s: %s",
  (_what, expected, one, serving) => {
    expect(mayBuild(one, labelled, serving, true)).toBe(expected);
  },
);

test("an agent serves while it is live, its engine answers and its breaker is not open", () => {
  const config = loadConfig({ liveness_s: 30, lease_ttl_s: 180 }, {});
  const engine = { available: false, version: null, runtimes: [] };
  const serves = (changes: Partial<AgentReport>, now = 1000) =>
    servingAgents([agent(changes)], config, now).length === 1;
  expect(serves({})).toBe(true);
  expect(serves({}, 31_000)).toBe(true);
  expect(serves({}, 31_001)).toBe(false);
  expect(serves({ engine })).toBe(false);
  expect(serves({ breaker: { ...breaker, state: "half_open" } })).toBe(true);
  expect(serves({ breaker: { ...breaker, state: "open" } })).toBe(false);
});

test("a build that no agent can run has the reason: no engine, or no labels", () => {
  expect(whyNobodyBuilds(plain, [agent()])).toBeUndefined();
  expect(whyNobodyBuilds(plain, [])).toContain("No agent with a working container engine");
  expect(whyNobodyBuilds(labelled, [agent()])).toContain("gpu=a100");
});
